//! Names of the objects in a store.
//!
//! ```text
//! <namespace>/<name>/<uid>/backups/<backup>/manifest.json
//! <namespace>/<name>/<uid>/backups/<backup>/data.tar.zst[.age]
//! <namespace>/<name>/<uid>/binlogs/<reign>/reign.json
//! <namespace>/<name>/<uid>/binlogs/<reign>/through.json
//! <namespace>/<name>/<uid>/binlogs/<reign>/segments/<sequence>.binlog.zst[.age]
//! <namespace>/<name>/<uid>/binlogs/<reign>/index/<first>-<last>.json
//! ```
//!
//! All are relative to the prefix that the store was declared with. A folder always ends with `/`, so no cluster's folder
//! is the beginning of another's (`db/` and `db-2/`, case F22), and the UID keeps a cluster that was created again under
//! its old name away from what its predecessor stored. Numbers are padded, so that the order of the names is theirs.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Longest key in bytes: S3 takes 1024, and the rest is left for the store's own prefix.
pub const MAX_KEY: usize = 768;

/// Longest part between two `/`, in bytes: what a file name may have where a store is a file system.
const MAX_PART: usize = 255;

/// Longest identifier of a backup, in bytes: it is a Kubernetes name, too.
const MAX_BACKUP_ID: usize = 63;

/// Why a text is no name of an object or folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} cannot be part of an object's key: {reason}")]
pub struct InvalidKey {
    what: &'static str,
    text: String,
    reason: &'static str,
}

/// Name of an object, relative to the store's prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

/// Name of a folder, relative to the store's prefix: empty for the store itself, else with a `/` at its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Folder(String);

impl Key {
    /// Takes a key that was listed or given by a user.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        check(text, "key")?;
        Ok(Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands behind the last `/`.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl Folder {
    /// The whole store.
    #[must_use]
    pub const fn root() -> Self {
        Self(String::new())
    }

    /// Takes a folder that was listed or given by a user; a `/` at its end is added if it lacks.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let text = text.strip_suffix('/').unwrap_or(text);
        if text.is_empty() {
            return Ok(Self::root());
        }
        check(text, "folder")?;
        Ok(Self(format!("{text}/")))
    }

    /// The text: empty, or with a `/` at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the folder itself, without those above; empty for the store.
    #[must_use]
    pub fn name(&self) -> &str {
        let text = self.0.strip_suffix('/').unwrap_or(&self.0);
        text.rsplit('/').next().unwrap_or(text)
    }

    /// Object of this name in the folder.
    pub fn key(&self, name: &str) -> Result<Key, InvalidKey> {
        Key::parse(&format!("{}{name}", self.0))
    }

    /// Whether an object lies in it, at any depth.
    #[must_use]
    pub fn holds(&self, key: &Key) -> bool {
        key.0.starts_with(&self.0)
    }

    /// A name that is known to be valid.
    fn object(&self, name: &str) -> Key {
        Key(format!("{}{name}", self.0))
    }

    fn folder(&self, name: &str) -> Self {
        Self(format!("{}{name}/", self.0))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A cluster's life, by which what it stored is found: a cluster that is created again has another UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "Identity")]
pub struct ClusterIdentity {
    namespace: String,
    name: String,
    uid: String,
}

/// [`ClusterIdentity`] before it was checked.
#[derive(Deserialize)]
struct Identity {
    namespace: String,
    name: String,
    uid: String,
}

impl TryFrom<Identity> for ClusterIdentity {
    type Error = InvalidKey;

    fn try_from(parts: Identity) -> Result<Self, InvalidKey> {
        Self::new(&parts.namespace, &parts.name, &parts.uid)
    }
}

impl ClusterIdentity {
    /// Namespace, name and UID as in the cluster's metadata.
    pub fn new(namespace: &str, name: &str, uid: &str) -> Result<Self, InvalidKey> {
        name_part(namespace, "namespace")?;
        name_part(name, "cluster name")?;
        name_part(uid, "uid")?;
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        })
    }

    /// Namespace of the cluster.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// UID of the cluster's object in Kubernetes.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Everything that this cluster stored.
    #[must_use]
    pub fn folder(&self) -> Folder {
        Folder(format!("{}/{}/{}/", self.namespace, self.name, self.uid))
    }

    /// The cluster whose folder (three levels below the store) this is.
    #[must_use]
    pub fn of_folder(folder: &Folder) -> Option<Self> {
        let mut parts = folder.0.strip_suffix('/')?.split('/');
        let identity = Self::new(parts.next()?, parts.next()?, parts.next()?).ok()?;
        parts.next().is_none().then_some(identity)
    }

    /// Its backups: one folder each.
    #[must_use]
    pub fn backups(&self) -> Folder {
        self.folder().folder("backups")
    }

    /// One backup.
    #[must_use]
    pub fn backup(&self, id: &BackupId) -> Folder {
        self.backups().folder(&id.0)
    }

    /// The manifest of a backup. It is written last: a backup without one is not complete.
    #[must_use]
    pub fn backup_manifest(&self, id: &BackupId) -> Key {
        self.backup(id).object("manifest.json")
    }

    /// The data of a backup.
    #[must_use]
    pub fn backup_data(&self, id: &BackupId, encrypted: bool) -> Key {
        self.backup(id).object(&format!("data.tar.zst{}", age(encrypted)))
    }

    /// All reigns of the binlog archive: one folder each.
    #[must_use]
    pub fn binlogs(&self) -> Folder {
        self.folder().folder("binlogs")
    }

    /// One reign: what the primary that was recorded in this epoch has committed (decision A8).
    #[must_use]
    pub fn reign(&self, epoch: u64) -> Folder {
        self.binlogs().folder(&format!("{epoch:020}"))
    }

    /// The manifest of a reign. It is written before the first segment.
    #[must_use]
    pub fn reign_manifest(&self, epoch: u64) -> Key {
        self.reign(epoch).object("reign.json")
    }

    /// Until when the archive is whole, when that is later than its last transaction. It is replaced as time goes by.
    #[must_use]
    pub fn reign_through(&self, epoch: u64) -> Key {
        self.reign(epoch).object("through.json")
    }

    /// A segment of the binlog: the sequence numbers of a reign begin with 1.
    #[must_use]
    pub fn segment(&self, epoch: u64, sequence: u64, encrypted: bool) -> Key {
        let name = format!("{sequence:020}.binlog.zst{}", age(encrypted));
        self.reign(epoch).folder("segments").object(&name)
    }

    /// The indexes of a reign.
    #[must_use]
    pub fn segment_indexes(&self, epoch: u64) -> Folder {
        self.reign(epoch).folder("index")
    }

    /// The index of the segments from `first` to `last`.
    #[must_use]
    pub fn segment_index(&self, epoch: u64, first: u64, last: u64) -> Key {
        self.segment_indexes(epoch)
            .object(&format!("{first:020}-{last:020}.json"))
    }
}

/// Epoch of a reign whose folder this is.
#[must_use]
pub fn epoch_of(reign: &Folder) -> Option<u64> {
    number(reign.name())
}

/// First and last segment of an index, by its key.
#[must_use]
pub fn segments_of(index: &Key) -> Option<(u64, u64)> {
    let (first, last) = index.file_name().strip_suffix(".json")?.split_once('-')?;
    Some((number(first)?, number(last)?)).filter(|(first, last)| first <= last)
}

/// Identifier of a backup within its cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BackupId(String);

impl BackupId {
    /// Lower case letters, digits and `-`, at most 63.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let invalid = |reason| invalid("backup", text, reason);
        if text.len() > MAX_BACKUP_ID {
            return Err(invalid("it is longer than 63 characters"));
        }
        name_part(text, "backup")?;
        if text.contains('.') {
            return Err(invalid("use lower case letters, digits and '-'"));
        }
        Ok(Self(text.to_owned()))
    }

    /// Identifiers of one cluster that are made like this sort by the time at which the backups began. The suffix tells
    /// backups of one second apart.
    pub fn at(time: Timestamp, suffix: &str) -> Result<Self, InvalidKey> {
        Self::parse(&format!("{}-{suffix}", time.strftime("%Y%m%dt%H%M%Sz")))
    }

    /// The backup whose folder this is.
    #[must_use]
    pub fn of_folder(folder: &Folder) -> Option<Self> {
        Self::parse(folder.name()).ok()
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BackupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for BackupId {
    type Error = InvalidKey;

    fn try_from(text: String) -> Result<Self, InvalidKey> {
        Self::parse(&text)
    }
}

impl From<BackupId> for String {
    fn from(id: BackupId) -> Self {
        id.0
    }
}

/// End of the name of what is encrypted.
const fn age(encrypted: bool) -> &'static str {
    if encrypted { ".age" } else { "" }
}

/// A number as it is written into names: 20 digits.
fn number(text: &str) -> Option<u64> {
    let digits = text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn invalid(what: &'static str, text: &str, reason: &'static str) -> InvalidKey {
    InvalidKey {
        what,
        text: text.chars().take(80).collect(),
        reason,
    }
}

/// A name that Kubernetes gave: its characters are safe in every store.
fn name_part(text: &str, what: &'static str) -> Result<(), InvalidKey> {
    let safe = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if text.is_empty() {
        return Err(invalid(what, text, "it is empty"));
    }
    if text.len() > MAX_PART {
        return Err(invalid(what, text, "it is longer than 255 characters"));
    }
    if !text.chars().all(safe) || !text.starts_with(ends) || !text.ends_with(ends) {
        return Err(invalid(
            what,
            text,
            "use lower case letters, digits, '-' and '.', beginning and ending with a letter or digit",
        ));
    }
    Ok(())
}

/// What holds for every key: stores that are file systems take it literally.
fn check(text: &str, what: &'static str) -> Result<(), InvalidKey> {
    if text.len() > MAX_KEY {
        return Err(invalid(what, text, "it is longer than 768 bytes"));
    }
    for part in text.split('/') {
        if part.is_empty() {
            return Err(invalid(what, text, "it is empty, or a part between two '/' is"));
        }
        if part == "." || part == ".." {
            return Err(invalid(what, text, "a part is '.' or '..'"));
        }
        if part.len() > MAX_PART {
            return Err(invalid(what, text, "a part between two '/' is longer than 255 bytes"));
        }
    }
    if text.chars().any(char::is_control) {
        return Err(invalid(what, text, "it has control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
