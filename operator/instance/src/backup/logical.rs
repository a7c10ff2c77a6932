//! A logical backup: the copy as SQL statements (docs/adr/0012).

use std::path::Path;

use mainstay_core::backup::BackupId;
use mainstay_core::backup::plan::BackupStep;
use mainstay_mysql::dump::{DumpError, DumpServer, File, Sink};
use mainstay_store::archive::{ArchiveError, Make, Packed, Packer, content_size, store_files};
use mainstay_store::{Access, Store};

use super::progress::Course;
use super::server::DumpedCopy;
use super::{Failure, store};

/// What a dump needs.
pub(super) struct Dump<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) access: &'a Access,
    pub(super) id: &'a BackupId,
    /// The data directory of the copy.
    pub(super) data: &'a Path,
    pub(super) course: &'a Course,
}

/// Why it was given up.
#[derive(Debug)]
enum Fault {
    Dump(DumpError),
    Archive(ArchiveError),
}

impl From<DumpError> for Fault {
    fn from(error: DumpError) -> Self {
        Self::Dump(error)
    }
}

impl From<ArchiveError> for Fault {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Dump(error) => Self::of(word(&error), &error),
            Fault::Archive(error) => Self::of("UploadFailed", &error),
        }
    }
}

const fn word(error: &DumpError) -> &'static str {
    match error {
        DumpError::Mysql(_) => "DumpFailed",
        DumpError::Prepared { .. } => "PreparedTransactions",
        DumpError::View { .. } => "InvalidView",
        DumpError::Type { .. } => "UnknownType",
        DumpError::TooLarge { .. } => "RowTooLarge",
    }
}

impl Dump<'_> {
    /// Dumps the copy into the store. What was stored, and how many bytes the copy takes.
    pub(super) async fn run(&self, copy: DumpedCopy) -> Result<(Packed, u64), Failure> {
        self.course.begin(BackupStep::Dump, None);
        let size = content_size(self.data, |_| false).await;
        let size = size.map_err(|error| Failure::of("VolumeFailed", &error))?;
        let server = DumpServer::connect(copy.socket, copy.password).await;
        let mut server = server.map_err(|error| Failure::of("DumpFailed", &error))?;
        let key = self
            .access
            .cluster
            .backup_data(self.id, self.access.recipient.is_some());
        let sealing = store::sealing(self.access);
        let mut statements = Statements {
            server: &mut server,
            course: self.course,
        };
        let stored = store_files(self.store, &key, &sealing, size, &mut statements).await;
        Ok((stored.map_err(Failure::from)?, size))
    }
}

/// The server, as files.
struct Statements<'a> {
    server: &'a mut DumpServer,
    course: &'a Course,
}

impl Make for Statements<'_> {
    type Error = Fault;

    async fn fill(&mut self, packer: &mut Packer) -> Result<(), Fault> {
        let mut files = Files {
            packer,
            course: self.course,
            number: 0,
            rows: 0,
        };
        self.server.dump(&mut files).await
    }
}

/// The files of a dump, by number: the order in which they are loaded is that of their names.
struct Files<'a> {
    packer: &'a mut Packer,
    course: &'a Course,
    number: u64,
    rows: u64,
}

impl Sink for Files<'_> {
    type Error = Fault;

    async fn take(&mut self, file: File) -> Result<(), Fault> {
        self.number += 1;
        let name = format!("{:010}-{}.sql", self.number, file.kind);
        self.packer.add(&name, &file.parts).await?;
        self.rows += file.rows;
        self.course.dumped(self.packer.content().bytes, self.rows);
        Ok(())
    }
}
