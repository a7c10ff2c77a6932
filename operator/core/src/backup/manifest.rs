//! What is written beside stored data, so that it can be understood without the cluster and without Mainstay.
//!
//! Both documents are JSON with a `format`. Fields are only ever added within a format, and unknown ones are ignored; a
//! higher format is refused, because its meaning is not known.

use jiff::Timestamp;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::keys::{BackupId, ClusterIdentity};
use crate::GtidSet;
use crate::gtid::Gtid;

/// The format that this version writes.
pub const FORMAT: u32 = 1;

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is no JSON, or lacks fields.
    #[error("failed to read {what}: {source}; it was changed or cut short: use another backup")]
    Malformed {
        /// Which document.
        what: &'static str,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// A newer version wrote it.
    #[error("failed to read {what}: it has format {found} and this version knows {FORMAT}: use a newer Mainstay")]
    Newer {
        /// Which document.
        what: &'static str,
        /// Its format.
        found: u32,
    },
}

/// How a backup was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Method {
    /// The files of a stopped data directory, copied from a replica with the CLONE plugin.
    #[default]
    Physical,
    /// SQL statements, made by such a copy.
    Logical,
}

/// How content is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheme {
    /// The age format, version 1, for one X25519 recipient.
    #[serde(rename = "age-x25519")]
    AgeX25519,
}

/// With what content is encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// How.
    pub scheme: Scheme,
    /// The public key (`age1…`) to which it is encrypted: tells which private key opens it, and is no secret.
    pub key_id: String,
}

/// One stored object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredFile {
    /// Name in the folder of the manifest.
    pub name: String,
    /// Bytes as stored.
    pub size: u64,
    /// SHA-256 of the bytes as stored, in lower-case hexadecimal.
    pub sha256: String,
}

/// What a backup is: the last object that is written of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupManifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Which backup of the cluster.
    pub id: BackupId,
    /// Name of the `MySQLBackup` for which it was made.
    #[serde(default)]
    pub name: Option<String>,
    /// The schedule that asked for it; absent when it was made by hand.
    #[serde(default)]
    pub schedule: Option<String>,
    /// Which cluster.
    pub cluster: ClusterIdentity,
    /// Instance from which it was taken.
    pub instance: String,
    /// `@@version` of the server.
    pub mysql_version: String,
    /// server_uuid of the instance; what is restored gets a new one.
    pub server_uuid: String,
    /// Epoch of the reign in which it was taken: its binlogs continue the backup.
    pub epoch: u64,
    /// Transactions that it holds, all of them and no other.
    pub gtid_executed: GtidSet,
    /// When it was begun.
    pub started_at: Timestamp,
    /// When all its files were stored.
    pub completed_at: Timestamp,
    /// How it was made.
    pub method: Method,
    /// What was stored, to be read one after the other as if it were one file.
    pub files: Vec<StoredFile>,
    /// With what the files are encrypted; absent when they are not.
    #[serde(default)]
    pub encryption: Option<Encryption>,
    /// Bytes of all files in the archive, without its own headers: of the data directory, or of statements.
    pub uncompressed_bytes: u64,
    /// Of a logical backup: bytes of the data directory that was dumped, which is about what loading it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_bytes: Option<u64>,
}

impl BackupManifest {
    /// Reads what [`BackupManifest::to_json`] wrote.
    pub fn from_json(json: &[u8]) -> Result<Self, ManifestError> {
        read(json, "the manifest of a backup")
    }

    /// JSON for people and programs.
    pub fn to_json(&self) -> Result<Vec<u8>, ManifestError> {
        write(self, "the manifest of a backup")
    }

    /// Bytes that its data takes on a volume, as far as that is known before it is there.
    #[must_use]
    pub fn restored_bytes(&self) -> u64 {
        self.data_bytes.unwrap_or(self.uncompressed_bytes)
    }

    /// Bytes that it takes in the store, its manifest not counted.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }
}

/// A transaction in the order of the binlog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchivedTransaction {
    /// Which.
    #[serde(serialize_with = "as_text", deserialize_with = "of_text")]
    pub gtid: Gtid,
    /// `original_commit_timestamp`: when the primary that a client wrote to committed it, by its clock, in microseconds since
    /// 1970. A later primary that stores it keeps this time: it was acknowledged then. A restore to a time stops before the
    /// first one that is later (decision A19).
    pub at: i64,
}

/// One immutable piece of a reign's binlog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Segment {
    /// Number in the reign, from 1, rising. One that is left out was used by a process that ended before its segment was
    /// indexed; the following one holds the same transactions.
    pub sequence: u64,
    /// The stored object.
    #[serde(flatten)]
    pub file: StoredFile,
    /// Bytes before compression.
    pub uncompressed_bytes: u64,
    /// With what it is encrypted; absent when it is not.
    #[serde(default)]
    pub encryption: Option<Encryption>,
    /// Transactions before its first one: gtid_executed that a server must contain to apply it.
    pub previous: GtidSet,
    /// Transactions in it.
    pub gtids: GtidSet,
    /// Transactions of `previous` that are stored nowhere and that no complete backup held then: the hole behind which the
    /// archive goes on.
    #[serde(default, skip_serializing_if = "GtidSet::is_empty")]
    pub missing: GtidSet,
    /// The transactions with their times, in the order of the binlog.
    pub transactions: Vec<ArchivedTransaction>,
}

/// What a reign of the archive is: written before its first segment.
///
/// A reign is valid up to the baseline of the next one: what lies beyond was never acknowledged, and never happened
/// (decision A8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReignManifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Which cluster.
    pub cluster: ClusterIdentity,
    /// Epoch in which the primary was recorded.
    pub epoch: u64,
    /// Instance that was recorded.
    pub instance: String,
    /// server_uuid under which it writes.
    pub server_uuid: String,
    /// Transactions with which it began.
    pub baseline: GtidSet,
    /// When it was recorded.
    pub since: Timestamp,
}

impl ReignManifest {
    /// Reads what [`ReignManifest::to_json`] wrote.
    pub fn from_json(json: &[u8]) -> Result<Self, ManifestError> {
        read(json, "the manifest of a reign")
    }

    /// JSON for people and programs.
    pub fn to_json(&self) -> Result<Vec<u8>, ManifestError> {
        write(self, "the manifest of a reign")
    }
}

/// Until when the archive is whole while nothing is committed: a recovery to a moment at which nothing happened has to know
/// that nothing did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchivedThrough {
    /// [`FORMAT`].
    pub format: u32,
    /// Which cluster.
    pub cluster: ClusterIdentity,
    /// Epoch of the reign. Only that of the newest reign says anything: an older one may have been cut off when it wrote.
    pub epoch: u64,
    /// Everything that was committed until then is stored.
    pub time: Timestamp,
}

impl ArchivedThrough {
    /// Reads what [`ArchivedThrough::to_json`] wrote.
    pub fn from_json(json: &[u8]) -> Result<Self, ManifestError> {
        read(json, "the time through which the archive is whole")
    }

    /// JSON for people and programs.
    pub fn to_json(&self) -> Result<Vec<u8>, ManifestError> {
        write(self, "the time through which the archive is whole")
    }
}

/// Segments of one reign that follow each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentIndex {
    /// [`FORMAT`].
    pub format: u32,
    /// Which cluster.
    pub cluster: ClusterIdentity,
    /// Epoch of the reign.
    pub epoch: u64,
    /// server_uuid of the primary of that reign.
    pub server_uuid: String,
    /// `@@version` of that server.
    pub mysql_version: String,
    /// In order of their sequence.
    pub segments: Vec<Segment>,
}

impl SegmentIndex {
    /// Reads what [`SegmentIndex::to_json`] wrote.
    pub fn from_json(json: &[u8]) -> Result<Self, ManifestError> {
        read(json, "an index of binlog segments")
    }

    /// JSON for programs, without white space: it names every transaction.
    pub fn to_json(&self) -> Result<Vec<u8>, ManifestError> {
        const WHAT: &str = "an index of binlog segments";
        serde_json::to_vec(self).map_err(|source| ManifestError::Malformed { what: WHAT, source })
    }
}

/// The part that is the same in every format.
#[derive(Deserialize)]
struct Versioned {
    format: u32,
}

fn read<T: DeserializeOwned>(json: &[u8], what: &'static str) -> Result<T, ManifestError> {
    let malformed = |source| ManifestError::Malformed { what, source };
    let Versioned { format } = serde_json::from_slice(json).map_err(malformed)?;
    if format > FORMAT {
        return Err(ManifestError::Newer { what, found: format });
    }
    serde_json::from_slice(json).map_err(malformed)
}

fn write<T: Serialize>(value: &T, what: &'static str) -> Result<Vec<u8>, ManifestError> {
    let mut json = serde_json::to_vec_pretty(value).map_err(|source| ManifestError::Malformed { what, source })?;
    json.push(b'\n');
    Ok(json)
}

fn as_text<S: Serializer>(gtid: &Gtid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(gtid)
}

fn of_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Gtid, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn manifest() -> BackupManifest {
        BackupManifest {
            format: FORMAT,
            id: BackupId::parse("nightly-1").unwrap(),
            name: Some("shop-nightly-1".to_owned()),
            schedule: Some("nightly".to_owned()),
            cluster: ClusterIdentity::new("prod", "shop", "6f1c2a9e").unwrap(),
            instance: "shop-1".to_owned(),
            mysql_version: "9.7.4".to_owned(),
            server_uuid: UUID.to_owned(),
            epoch: 7,
            gtid_executed: format!("{UUID}:1-5:7").parse().unwrap(),
            started_at: "2026-11-30T07:30:00Z".parse().unwrap(),
            completed_at: "2026-11-30T07:31:00Z".parse().unwrap(),
            method: Method::Physical,
            files: vec![StoredFile {
                name: "data.tar.zst.age".to_owned(),
                size: 12,
                sha256: "ab".repeat(32),
            }],
            encryption: Some(Encryption {
                scheme: Scheme::AgeX25519,
                key_id: "age1xyz".to_owned(),
            }),
            uncompressed_bytes: 40,
            data_bytes: None,
        }
    }

    /// What is stored is read by later versions for years: a change of this text is a change of the format.
    #[test]
    fn a_backup_is_written_as_documented() {
        let json: serde_json::Value = serde_json::from_slice(&manifest().to_json().unwrap()).unwrap();
        let expected = serde_json::json!({
            "format": 1,
            "id": "nightly-1",
            "name": "shop-nightly-1",
            "schedule": "nightly",
            "cluster": {"namespace": "prod", "name": "shop", "uid": "6f1c2a9e"},
            "instance": "shop-1",
            "mysqlVersion": "9.7.4",
            "serverUuid": UUID,
            "epoch": 7,
            "gtidExecuted": format!("{UUID}:1-5:7"),
            "startedAt": "2026-11-30T07:30:00Z",
            "completedAt": "2026-11-30T07:31:00Z",
            "method": "physical",
            "files": [{"name": "data.tar.zst.age", "size": 12, "sha256": "ab".repeat(32)}],
            "encryption": {"scheme": "age-x25519", "keyId": "age1xyz"},
            "uncompressedBytes": 40,
        });
        assert_eq!(json, expected);
        assert_eq!(
            BackupManifest::from_json(expected.to_string().as_bytes()).unwrap(),
            manifest()
        );
    }

    #[test]
    fn a_logical_backup_says_how_much_it_is_when_it_is_loaded() {
        let logical = BackupManifest {
            method: Method::Logical,
            data_bytes: Some(400),
            ..manifest()
        };
        let json: serde_json::Value = serde_json::from_slice(&logical.to_json().unwrap()).unwrap();
        assert_eq!((&json["method"], &json["dataBytes"]), (&"logical".into(), &400.into()));
        assert_eq!(BackupManifest::from_json(json.to_string().as_bytes()).unwrap(), logical);
        assert_eq!((logical.restored_bytes(), manifest().restored_bytes()), (400, 40));
    }

    #[test]
    fn an_index_is_written_as_documented() {
        let expected = serde_json::json!({
            "format": 1,
            "cluster": {"namespace": "prod", "name": "shop", "uid": "6f1c2a9e"},
            "epoch": 7,
            "serverUuid": UUID,
            "mysqlVersion": "9.7.4",
            "segments": [{
                "sequence": 1,
                "name": "00000000000000000001.binlog.zst",
                "size": 3,
                "sha256": "cd".repeat(32),
                "uncompressedBytes": 9,
                "encryption": null,
                "previous": "",
                "gtids": format!("{UUID}:1"),
                "transactions": [{"gtid": format!("{UUID}:1"), "at": 1_796_030_000_000_000_i64}],
            }],
        });
        let index = SegmentIndex::from_json(expected.to_string().as_bytes()).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&index.to_json().unwrap()).unwrap();
        assert_eq!(json, expected);
    }

    #[test]
    fn a_reign_is_written_as_documented() {
        let expected = serde_json::json!({
            "format": 1,
            "cluster": {"namespace": "prod", "name": "shop", "uid": "6f1c2a9e"},
            "epoch": 7,
            "instance": "shop-1",
            "serverUuid": UUID,
            "baseline": format!("{UUID}:1-5"),
            "since": "2026-11-30T07:30:00Z",
        });
        let reign = ReignManifest::from_json(expected.to_string().as_bytes()).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&reign.to_json().unwrap()).unwrap();
        assert_eq!(json, expected);
    }

    #[test]
    fn newer_formats_are_refused_and_new_fields_ignored() {
        let mut json: serde_json::Value = serde_json::from_slice(&manifest().to_json().unwrap()).unwrap();
        json["comment"] = "of a later version".into();
        assert_eq!(
            BackupManifest::from_json(json.to_string().as_bytes()).unwrap(),
            manifest()
        );
        json["format"] = 2.into();
        json["id"] = serde_json::Value::Null;
        let refused = BackupManifest::from_json(json.to_string().as_bytes()).unwrap_err();
        assert!(refused.to_string().contains("it has format 2"), "{refused}");
        let whole = manifest().to_json().unwrap();
        let cut = BackupManifest::from_json(&whole[..whole.len() / 2]).unwrap_err();
        assert!(cut.to_string().contains("cut short"), "{cut}");
    }

    #[test]
    fn a_cluster_that_escapes_its_folder_is_refused() {
        let mut json: serde_json::Value = serde_json::from_slice(&manifest().to_json().unwrap()).unwrap();
        json["cluster"]["name"] = "../other".into();
        assert!(BackupManifest::from_json(json.to_string().as_bytes()).is_err());
    }
}
