//! Replaces the data directory by what is stored: for an instance to which no other one can give a clone.

use mainstay_core::GtidSet;
use mainstay_core::backup::restore::Target;
use mainstay_store::{Access, RecoveryOrder, RecoverySource};

use super::directory::blocking;
use super::recovery::Attempt;
use super::{Next, SuperviseError, Supervisor};
use crate::mysqld::chain;
use crate::state::Stage;

impl Supervisor {
    /// Restores the newest backup of the cluster and replays the archive behind it, as far as it reaches; the rest comes from the
    /// primary. A crash before the end leaves a directory that nobody takes for data.
    pub(super) async fn refill(&mut self, at_least: &GtidSet) -> Result<Option<Next>, SuperviseError> {
        let directory = self.shared.config.paths.store.clone();
        let access = blocking("read the access to the store", move || Ok(Access::read(&directory))).await?;
        let access = access
            .map_err(|error| SuperviseError::Ended(chain(&error)))?
            .ok_or_else(|| SuperviseError::Ended("the access to the store is not mounted".to_owned()))?;
        let order = RecoveryOrder {
            request: String::new(),
            source: RecoverySource {
                namespace: access.cluster.namespace().to_owned(),
                name: access.cluster.name().to_owned(),
                uid: Some(access.cluster.uid().to_owned()),
            },
            target: Target::Latest,
        };
        match self.restore(access, order, at_least.clone()).await? {
            Attempt::Interrupted(next) => Ok(Some(next)),
            Attempt::Failed(error) => Err(SuperviseError::Restore(error)),
            Attempt::Done(_) => {
                // Like a clone: it keeps the life that it began when the former data were given up, and gets a server_uuid of
                // its own (rule 0).
                self.adopt_directory(Stage::Cloned, None).await?;
                Ok(None)
            }
        }
    }
}
