//! Being in touch with the other instances: each is pinged when nothing was heard of it for a second.
//!
//! A ping counts on both sides, so one of two is enough. The address that worked last is tried first: name resolution
//! needs the cluster's DNS, which may be away when this matters most. The certificate is the cluster's, and the answer
//! says whose it is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::observed::Mysqld;
use mainstay_core::rules::InstanceName;
use mainstay_mysql::Receiver;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::client::{self, ClientTls, InstanceClient};
use crate::config::Peers;
use crate::hearing;
use crate::mysqld::chain;
use crate::proto;
use crate::resolve::resolve;
use crate::shared::Shared;

/// A receiver that heard its source within this time receives (decision B14).
const RECEIVES: Duration = Duration::from_secs(2);

/// Until the end of the process.
pub(crate) async fn keep_in_touch(shared: Arc<Shared>) {
    let mut tasks = JoinSet::new();
    let mut handles: BTreeMap<InstanceName, AbortHandle> = BTreeMap::new();
    loop {
        let wanted = shared.hearing.others(&shared.state().told);
        handles.retain(|name, handle| {
            let keep = wanted.contains(name);
            if !keep {
                handle.abort();
            }
            keep
        });
        for name in wanted {
            let shared = Arc::clone(&shared);
            handles
                .entry(name.clone())
                .or_insert_with(|| tasks.spawn(async move { talk(&shared, &name).await }));
        }
        sleep(shared.config.timing.ping).await;
        while tasks.try_join_next().is_some() {}
    }
}

/// What this instance says of itself in a ping or its answer: it receives, and acknowledges what it receives. In the
/// middle of a large transaction it does not say so, for then it has nothing to acknowledge yet.
pub(crate) fn receives(shared: &Shared) -> bool {
    shared.process().phase == Mysqld::Running
        && shared
            .last_state()
            .and_then(|state| state.channel)
            .is_some_and(|channel| {
                channel.receiver == Receiver::On && channel.last_noted.is_some_and(|age| age <= RECEIVES)
            })
}

async fn talk(shared: &Shared, name: &InstanceName) {
    let mut line = Line {
        shared,
        name,
        client: None,
        address: None,
    };
    let mut was_heard = true;
    loop {
        let interval = shared.config.timing.ping;
        let age = shared.hearing.age(name).unwrap_or(interval);
        let left = interval.saturating_sub(age);
        if !left.is_zero() {
            sleep(left).await;
            continue;
        }
        match line.ping().await {
            Ok(()) if !was_heard => {
                tracing::info!(instance = %name, "the other instance is heard again");
                was_heard = true;
            }
            Ok(()) => {}
            Err(reason) => {
                if was_heard {
                    tracing::info!(instance = %name, reason, "the other instance is not heard");
                }
                was_heard = false;
                sleep(interval).await;
            }
        }
    }
}

/// The connection to another instance.
struct Line<'a> {
    shared: &'a Shared,
    name: &'a InstanceName,
    client: Option<InstanceClient>,
    /// The address that worked last.
    address: Option<SocketAddr>,
}

impl Line<'_> {
    async fn ping(&mut self) -> Result<(), String> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect().await?,
        };
        let told = self.shared.state().told;
        let request = proto::PingRequest {
            instance: self.shared.config.instance.0.clone(),
            reign: self.shared.hearing.reign(&told).as_ref().map(Into::into),
            receives: receives(self.shared),
        };
        let reply = client.exchange(request).await.map_err(|error| chain(&error))?;
        if reply.instance != self.name.0 {
            self.address = None;
            return Err(format!("{} answers at its address", reply.instance));
        }
        let reign = hearing::reign(reply.reign.as_ref());
        self.shared.hearing.peer(&reply.instance, reign, reply.receives);
        self.client = Some(client);
        Ok(())
    }

    async fn connect(&mut self) -> Result<InstanceClient, String> {
        let config = &self.shared.config;
        let tls = identity(self.shared).await.map_err(|error| error.to_string())?;
        let (server_name, fixed) = match &config.peers {
            Peers::Names => (config.host_of(self.name), None),
            Peers::Fixed { addresses, server_name } => (server_name.clone(), addresses.get(self.name).copied()),
        };
        let mut reason = "its name is not known".to_owned();
        if let Some(address) = self.address.or(fixed) {
            match client::connect(address, &server_name, &tls).await {
                Ok(client) => {
                    self.address = Some(address);
                    return Ok(client);
                }
                Err(error) => reason = chain(&error),
            }
        }
        if fixed.is_some() {
            return Err(reason);
        }
        for address in resolve(&server_name, config.ports.grpc).await {
            match client::connect(address, &server_name, &tls).await {
                Ok(client) => {
                    self.address = Some(address);
                    return Ok(client);
                }
                Err(error) => reason = chain(&error),
            }
        }
        Err(reason)
    }
}

/// This instance's own certificate, as it is mounted now.
async fn identity(shared: &Shared) -> std::io::Result<ClientTls> {
    let directory = &shared.config.paths.server_tls;
    let read = async |name: &str| tokio::fs::read_to_string(directory.join(name)).await;
    Ok(ClientTls {
        certificate: read("tls.crt").await?,
        key: read("tls.key").await?.into(),
        ca: read("ca.crt").await?,
    })
}
