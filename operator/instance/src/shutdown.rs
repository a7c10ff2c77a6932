//! The shutdown rule (decision A1): a writable mysqld is never stopped cleanly.
//!
//! On SIGTERM a primary tells its clients that commits are durable which no replica has. So whoever wants a clean stop
//! needs a [`ReadOnly`], and only [`make_read_only`] makes one.

use std::time::Duration;

use mainstay_mysql::{Mysql, Sessions};
use tokio::time::{sleep, timeout};

/// How long sessions may take to be ended.
const SESSIONS: Duration = Duration::from_secs(1);
/// Between two looks at the commits that hold the server up.
const LOOK: Duration = Duration::from_millis(100);

/// Proof that the server refused writes, with no commit in flight, when this was made.
#[derive(Debug)]
pub(crate) struct ReadOnly {
    _made_here: (),
}

/// Makes the server read-only within the limit. `None`: it was not possible, a commit waits; then nothing but SIGKILL is
/// left.
///
/// A server that says that it is read-only is told so nevertheless: it may say so while somebody else's statement still
/// waits for a commit to end, and that one may be acknowledged yet.
pub(crate) async fn make_read_only(mysql: &dyn Mysql, limit: Duration) -> Option<ReadOnly> {
    let look = || timeout(limit, mysql.read_state());
    if look().await.ok()?.ok()?.commit_cannot_end() {
        return None;
    }
    close(mysql, limit).await?;
    // What counts is what the server says after it.
    let is_read_only = look().await.ok()?.ok()?.super_read_only;
    is_read_only.then_some(ReadOnly { _made_here: () })
}

/// Switches `super_read_only` on within the limit, without a look before or after; `None` when it does not take effect.
///
/// It waits for what other sessions do: a statement that writes, tables that somebody locked, a commit.
pub(crate) async fn close(mysql: &dyn Mysql, limit: Duration) -> Option<()> {
    tokio::select! {
        result = let_nobody_hold_up(mysql, limit, mysql.set_super_read_only(limit)) => match result {
            Ok(()) => Some(()),
            Err(error) => {
                tracing::warn!(%error, "mysqld cannot be made read-only");
                None
            }
        },
        () = until_a_commit_cannot_end(mysql) => {
            tracing::warn!("mysqld cannot be made read-only: a commit waits, and too few replicas are connected");
            None
        }
    }
}

/// Does something that clients may hold up by the locks that they have. When half the time is over the clients' sessions
/// are ended, which costs them less than the SIGKILL that would follow. No commit that waits for an acknowledgement ends
/// by that, so nobody is told what is not so.
pub(crate) async fn let_nobody_hold_up<T>(mysql: &dyn Mysql, limit: Duration, work: impl Future<Output = T>) -> T {
    let end_clients = async {
        sleep(limit / 2).await;
        tracing::warn!("what clients do holds a change of mysqld up: their sessions are ended");
        end_clients(mysql, limit).await;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        result = work => result,
        result = end_clients => result,
    }
}

/// Ends the sessions of clients. Best effort.
pub(crate) async fn end_clients(mysql: &dyn Mysql, limit: Duration) {
    if let Err(error) = mysql.end_client_sessions(Sessions::Clients, limit).await {
        tracing::warn!(%error, "clients may still be connected");
    }
}

/// Ends the sessions for which a stopping server would wait: seconds for those of replicas and its own manager. Best
/// effort: what is left delays the end, and no more.
pub(crate) async fn end_sessions(mysql: &dyn Mysql) {
    if let Err(error) = mysql.end_client_sessions(Sessions::ClientsAndReplicas, SESSIONS).await {
        tracing::warn!(%error, "sessions are left to mysqld");
    }
    mysql.close_connections().await;
}

/// Returns when a commit waits for more replicas than are connected, and did so at the look before.
async fn until_a_commit_cannot_end(mysql: &dyn Mysql) {
    let mut before = false;
    loop {
        sleep(LOOK).await;
        let now = mysql.read_state().await.is_ok_and(|state| state.commit_cannot_end());
        if now && before {
            return;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, FakeMysql};

    const LIMIT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a1_a_read_only_server_may_be_stopped() {
        let mysql = FakeMysql::new(testing::replica());
        assert!(make_read_only(&mysql, LIMIT).await.is_some());
        assert_eq!(
            mysql.calls(),
            ["set_super_read_only"],
            "it has to be true, and not only said"
        );
    }

    #[tokio::test]
    async fn a1_what_a_server_says_of_itself_is_no_proof() {
        let mysql = FakeMysql::new(testing::replica());
        mysql.hang_commits();
        assert!(make_read_only(&mysql, LIMIT).await.is_none());
    }

    #[tokio::test]
    async fn a1_a_writable_server_is_made_read_only_first() {
        let mysql = FakeMysql::new(testing::primary(1));
        assert!(make_read_only(&mysql, LIMIT).await.is_some());
        assert_eq!(mysql.calls(), ["set_super_read_only"]);
    }

    #[tokio::test]
    async fn a1_a_hanging_commit_leaves_nothing_but_sigkill() {
        let mysql = FakeMysql::new(testing::primary(1));
        mysql.hang_commits();
        assert!(make_read_only(&mysql, LIMIT).await.is_none());
        assert_eq!(
            mysql.calls(),
            ["set_super_read_only", "end_client_sessions"],
            "it may have been a client that locked tables"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a1_a_look_that_takes_too_long_is_given_up() {
        let mysql = FakeMysql::new(testing::primary(1));
        mysql.answer_after(Duration::from_secs(2));
        let began = tokio::time::Instant::now();
        assert!(make_read_only(&mysql, LIMIT).await.is_none());
        assert_eq!(began.elapsed(), LIMIT);
    }

    #[tokio::test]
    async fn a1_a_commit_that_cannot_end_is_not_waited_for() {
        let mut state = testing::primary(1);
        state.semi_sync.clients = 0;
        state.semi_sync.waiters = 3;
        let mysql = FakeMysql::new(state);
        assert!(make_read_only(&mysql, LIMIT).await.is_none());
        assert_eq!(mysql.calls(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a1_a_server_that_does_not_answer_is_not_stopped_cleanly() {
        let mysql = FakeMysql::new(testing::primary(1));
        mysql.fall_silent();
        assert!(make_read_only(&mysql, LIMIT).await.is_none());
    }
}
