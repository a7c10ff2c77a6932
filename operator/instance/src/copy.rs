//! Copying of a donor's data into a server that was just made: for a replica that is rebuilt, and for a backup.

use std::time::Duration;

use mainstay_mysql::port::CloneProgress;
use mainstay_mysql::{CloneDonor, Mysql, MysqlError};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::mysqld::Server;
use crate::process::Exit;

/// How mysqld says "start me again": after a clone, and after the statement RESTART.
pub(crate) const RESTART_ME: Exit = Exit::Code(16);
/// How long the empty recipient may take to answer.
const RECIPIENT: Duration = Duration::from_mins(2);
/// Between two looks at the progress.
const PROGRESS: Duration = Duration::from_secs(1);
/// Between two attempts to reach the recipient.
const POLL: Duration = Duration::from_millis(50);

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    /// The recipient refused, or does not answer.
    #[error(transparent)]
    Mysql(MysqlError),
    /// It ended in another way than after a clone.
    #[error("{0}")]
    Ended(String),
}

/// Copies the donor over a server that was just started, tells every second how far it is, and returns when the server has
/// ended. What is there on an error is no copy, and must not be served.
pub(crate) async fn copy(
    mysql: &dyn Mysql,
    recipient: &mut Server,
    donor: &CloneDonor,
    mut tell: impl FnMut(CloneProgress) + Send,
) -> Result<(), CopyError> {
    let work = async {
        answers(mysql).await?;
        mysql.clone_from(donor).await
    };
    tokio::pin!(work);
    // Beside the work, never in its turn: both ask over one connection, and whoever waits for it must not keep the other from
    // going on.
    let telling = async {
        loop {
            sleep(PROGRESS).await;
            if let Ok(progress) = mysql.clone_progress().await {
                tell(progress);
            }
        }
    };
    tokio::pin!(telling);
    let (mut copied, mut failure) = (false, None);
    let process = recipient.child.handle();
    let ended = recipient.ended();
    tokio::pin!(ended);
    let (exit, reason) = loop {
        tokio::select! {
            ended = &mut ended => break ended,
            result = &mut work, if !copied => {
                copied = true;
                if let Err(error) = result {
                    failure = Some(error);
                    process.signal(Signal::KILL);
                }
            }
            () = &mut telling => {}
        }
    };
    match failure {
        Some(error) => Err(CopyError::Mysql(error)),
        None if exit == RESTART_ME => Ok(()),
        None => Err(CopyError::Ended(reason)),
    }
}

/// Waits until the recipient can be asked for something.
async fn answers(mysql: &dyn Mysql) -> Result<(), MysqlError> {
    let deadline = Instant::now() + RECIPIENT;
    while let Err(error) = mysql.read_state().await {
        if Instant::now() > deadline {
            return Err(error);
        }
        sleep(POLL).await;
    }
    Ok(())
}
