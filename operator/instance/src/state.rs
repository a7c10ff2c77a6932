//! The state file (decision B2; docs/instance.md has its format).
//!
//! It survives what the data directory does not, and says what this instance was last told. A write replaces the older
//! of two slots and is durable before the function returns; whatever is torn, the former state is read.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::observed::{Persisted, Recovered};
use mainstay_core::rules::{Incarnation, InstanceName, MemberId};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Bytes of a slot.
const SLOT: usize = 64 * 1024;
/// Bytes before the body.
const HEAD: usize = 56;
const MAGIC: &[u8; 8] = b"MAINSTAY";
/// The format that this version writes, and the highest that it reads.
const FORMAT: u32 = 1;

/// Why the state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    /// The file system refused.
    #[error("failed to {what} the state file {path}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A newer Mainstay wrote it, and what it means is not known here.
    #[error(
        "failed to read the state file {path}: Mainstay {written_by} wrote it in format {format}, and this version knows \
         formats up to {FORMAT}; run that version, or a later one"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
        /// The version that wrote it.
        written_by: String,
    },
    /// Another manager works on this volume.
    #[error("failed to lock the state file {path}: another instance manager uses this volume")]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// It could not be opened when the manager began, and has not been since.
    #[error("failed to write the state file {path}: it could not be read, so nobody knows what it would replace")]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// There is more to remember than fits.
    #[error("failed to write the state file: {bytes} bytes do not fit into a slot")]
    TooLong {
        /// Bytes of head and body.
        bytes: usize,
    },
}

/// What is being made of the data directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// There is none that counts.
    #[default]
    Initialising,
    /// It is there.
    Ready,
    /// It is to be put aside before it is replaced by a clone: it is whole, and not to be served.
    Retiring,
    /// It is being replaced by a clone: what lies there is not to be served.
    Cloning,
    /// It is whole and begins another life, in which no server has answered yet: a clone, or one whose history was reset. Its
    /// server gets a server_uuid of its own.
    Cloned,
}

/// What the state file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Identity of the data directory; empty before the first one was made.
    pub(crate) incarnation: String,
    /// What is being made of the data directory.
    pub(crate) stage: Stage,
    /// What this instance was last told.
    pub(crate) told: Persisted,
    /// Transactions that were executed once in this life: what the server has must contain them.
    pub(crate) executed: GtidSet,
    /// It did not: its set says nothing about its data.
    pub(crate) history_reset: bool,
    /// What the data directory was recovered to, if it came about like that.
    pub(crate) recovered: Option<Recovered>,
}

/// Bytes of the text of a set that is remembered; a longer one (thousands of gaps) leaves the former one in its place.
const EXECUTED: usize = 16 * 1024;

impl State {
    /// Identity of the data directory.
    #[must_use]
    pub(crate) fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.clone())
    }

    /// Begins another life: a new identity, and nothing was told to it. The pair stays: what is older is refused by the
    /// instance, whatever its data directory.
    pub(crate) fn begin_life(&mut self) {
        self.incarnation = uuid::Uuid::new_v4().to_string();
        self.recovered = None;
        self.told = Persisted {
            epoch: self.told.epoch,
            seq: self.told.seq,
            ..Persisted::default()
        };
        self.executed = GtidSet::new();
        self.history_reset = false;
    }

    /// The data stays and nobody knows what it holds: another life, with a server_uuid of its own, because the GTIDs that the
    /// server would issue now were issued before.
    pub(crate) fn lose_history(&mut self) {
        self.begin_life();
        self.stage = Stage::Cloned;
        self.history_reset = true;
    }

    /// Remembers what was executed.
    pub(crate) fn note_executed(&mut self, executed: &GtidSet) {
        if executed.to_string().len() <= EXECUTED {
            self.executed = executed.clone();
        }
    }

    /// This instance is the primary and nobody else counts: whatever its server says is all there is.
    #[must_use]
    pub(crate) fn stands_alone(&self, own: &InstanceName) -> bool {
        let primary = self.told.primary.as_ref();
        let itself = primary.is_some_and(|id| &id.instance == own && id.incarnation.0 == self.incarnation);
        itself && self.told.members.is_empty() && self.told.acks_required == 0
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    written_by: String,
    incarnation: String,
    stage: Stage,
    epoch: u64,
    seq: u64,
    told_epoch: u64,
    primary: Option<Member>,
    baseline: GtidSet,
    members: Vec<Member>,
    acks_required: u32,
    #[serde(default)]
    executed: GtidSet,
    #[serde(default)]
    history_reset: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovered: Option<RecoveredBody>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecoveredBody {
    request: String,
    backup: String,
    reached: GtidSet,
    time: Option<Timestamp>,
    completed_at: Timestamp,
}

/// What is read of a body whose format is not known.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Writer {
    written_by: String,
}

#[derive(Serialize, Deserialize)]
struct Member {
    instance: String,
    incarnation: String,
}

impl From<&MemberId> for Member {
    fn from(id: &MemberId) -> Self {
        Self {
            instance: id.instance.0.clone(),
            incarnation: id.incarnation.0.clone(),
        }
    }
}

impl From<Member> for MemberId {
    fn from(member: Member) -> Self {
        Self {
            instance: InstanceName(member.instance),
            incarnation: Incarnation(member.incarnation),
        }
    }
}

impl From<&State> for Body {
    fn from(state: &State) -> Self {
        Self {
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
            incarnation: state.incarnation.clone(),
            stage: state.stage,
            epoch: state.told.epoch,
            seq: state.told.seq,
            told_epoch: state.told.told_epoch,
            primary: state.told.primary.as_ref().map(Into::into),
            baseline: state.told.baseline.clone(),
            members: state.told.members.iter().map(Into::into).collect(),
            acks_required: state.told.acks_required,
            executed: state.executed.clone(),
            history_reset: state.history_reset,
            recovered: state.recovered.clone().map(Into::into),
        }
    }
}

impl From<Recovered> for RecoveredBody {
    fn from(recovered: Recovered) -> Self {
        let Recovered {
            request,
            backup,
            reached,
            time,
            completed_at,
        } = recovered;
        Self {
            request,
            backup,
            reached,
            time,
            completed_at,
        }
    }
}

impl From<RecoveredBody> for Recovered {
    fn from(body: RecoveredBody) -> Self {
        let RecoveredBody {
            request,
            backup,
            reached,
            time,
            completed_at,
        } = body;
        Self {
            request,
            backup,
            reached,
            time,
            completed_at,
        }
    }
}

impl From<Body> for State {
    fn from(body: Body) -> Self {
        Self {
            incarnation: body.incarnation,
            stage: body.stage,
            told: Persisted {
                epoch: body.epoch,
                seq: body.seq,
                told_epoch: body.told_epoch,
                primary: body.primary.map(Into::into),
                baseline: body.baseline,
                members: body
                    .members
                    .into_iter()
                    .map(Into::into)
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect(),
                acks_required: body.acks_required,
            },
            executed: body.executed,
            history_reset: body.history_reset,
            recovered: body.recovered.map(Into::into),
        }
    }
}

/// A slot as it lies in the file.
enum Slot {
    /// Never written, torn or damaged.
    Void,
    /// Written whole.
    Valid { generation: u64, state: Box<State> },
    /// Written whole, by a version that knows more.
    Newer { format: u32, written_by: String },
}

/// The state file, open and locked; or what stands for one that cannot be opened: it holds nothing, and takes nothing.
#[derive(Debug)]
pub(crate) struct StateFile {
    file: Option<File>,
    path: PathBuf,
    state: State,
    generation: u64,
}

/// What was found when the state file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// There was none, or nothing was written to it yet.
    Nothing,
    /// It could be read.
    State,
    /// No slot is whole: the identity of the data directory is not known.
    Damage,
}

impl StateFile {
    /// Opens the state file, or makes it.
    pub(crate) fn open(path: &Path) -> Result<(Self, Found), StateError> {
        let io = |what, source| StateError::Io {
            what,
            path: path.to_owned(),
            source,
        };
        let existed = path.try_exists().map_err(|source| io("find", source))?;
        if !existed {
            create(path).map_err(|source| io("create", source))?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|source| io("open", source))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_held| StateError::Locked { path: path.to_owned() })?;
        let mut bytes = Vec::with_capacity(2 * SLOT);
        (&file)
            .take(2 * SLOT as u64)
            .read_to_end(&mut bytes)
            .map_err(|source| io("read", source))?;
        // A file that was cut off lost the second slot at most; what is missing is no valid slot.
        bytes.resize(2 * SLOT, 0);
        let mut best: Option<(u64, State)> = None;
        for slot in bytes.chunks(SLOT) {
            match read_slot(slot) {
                Slot::Void => {}
                Slot::Newer { format, written_by } => {
                    return Err(StateError::Newer {
                        path: path.to_owned(),
                        format,
                        written_by,
                    });
                }
                Slot::Valid { generation, state } => {
                    if best.as_ref().is_none_or(|(other, _)| generation > *other) {
                        best = Some((generation, *state));
                    }
                }
            }
        }
        let found = match &best {
            None => Found::Damage,
            Some((_, state)) if *state == State::default() => Found::Nothing,
            Some(_) => Found::State,
        };
        let (generation, state) = best.unwrap_or_default();
        Ok((
            Self {
                file: Some(file),
                path: path.to_owned(),
                state,
                generation,
            },
            found,
        ))
    }

    /// For a manager that has to say that its volume cannot be read.
    #[must_use]
    pub(crate) fn unknown(path: &Path) -> Self {
        Self {
            file: None,
            path: path.to_owned(),
            state: State::default(),
            generation: 0,
        }
    }

    /// What it holds is known.
    #[must_use]
    pub(crate) const fn is_known(&self) -> bool {
        self.file.is_some()
    }

    /// Gives the volume up, for another manager: before the last user of this one is gone.
    pub(crate) fn unlock(&self) {
        if let Some(file) = &self.file
            && let Err(error) = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock)
        {
            tracing::warn!(%error, "failed to unlock the state file");
        }
    }

    /// What it holds.
    #[must_use]
    pub(crate) const fn state(&self) -> &State {
        &self.state
    }

    /// Writes a state and returns when it is durable. After an error the former state holds.
    pub(crate) fn write(&mut self, state: State) -> Result<(), StateError> {
        let Some(file) = &self.file else {
            return Err(StateError::Unknown {
                path: self.path.clone(),
            });
        };
        let generation = self.generation + 1;
        let bytes = write_slot(generation, &state)?;
        let offset = if generation.is_multiple_of(2) { SLOT as u64 } else { 0 };
        let io = |what, source| StateError::Io {
            what,
            path: self.path.clone(),
            source,
        };
        file.write_all_at(&bytes, offset)
            .map_err(|source| io("write", source))?;
        file.sync_data().map_err(|source| io("sync", source))?;
        self.generation = generation;
        self.state = state;
        Ok(())
    }
}

/// Makes the file with all its blocks, so that a write needs no space later; whole or not at all.
fn create(path: &Path) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all_at(&vec![0; 2 * SLOT], 0)?;
    // A slot that says "nothing yet", so that a file without a whole slot can only be a damaged one.
    file.write_all_at(
        &write_slot(0, &State::default()).map_err(io::Error::other)?,
        SLOT as u64,
    )?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn write_slot(generation: u64, state: &State) -> Result<Vec<u8>, StateError> {
    let body = serde_json::to_vec(&Body::from(state)).unwrap_or_default();
    let length = u32::try_from(body.len())
        .ok()
        .filter(|_| body.len() <= SLOT - HEAD && !body.is_empty());
    let length = length.ok_or(StateError::TooLong {
        bytes: HEAD + body.len(),
    })?;
    let mut slot = Vec::with_capacity(HEAD + body.len());
    slot.extend_from_slice(MAGIC);
    slot.extend_from_slice(&FORMAT.to_le_bytes());
    slot.extend_from_slice(&length.to_le_bytes());
    slot.extend_from_slice(&generation.to_le_bytes());
    let checksum = checksum(&slot, &body);
    slot.extend_from_slice(&checksum);
    slot.extend_from_slice(&body);
    Ok(slot)
}

fn checksum(head: &[u8], body: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(head).chain_update(body).finalize().into()
}

fn read_slot(slot: &[u8]) -> Slot {
    read_whole_slot(slot).unwrap_or(Slot::Void)
}

/// `None` unless it was written whole.
fn read_whole_slot(slot: &[u8]) -> Option<Slot> {
    let (magic, rest) = slot.split_first_chunk::<8>()?;
    let (format, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (generation, rest) = rest.split_first_chunk::<8>()?;
    let (sum, rest) = rest.split_first_chunk::<32>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let body = rest.get(..length)?;
    if magic != MAGIC || checksum(slot.get(..HEAD - 32)?, body) != *sum {
        return None;
    }
    let format = u32::from_le_bytes(*format);
    if format > FORMAT {
        let writer = serde_json::from_slice::<Writer>(body);
        let written_by = writer.map_or_else(
            |_unknown| "of an unknown version".to_owned(),
            |writer| writer.written_by,
        );
        return Some(Slot::Newer { format, written_by });
    }
    let state = Box::new(State::from(serde_json::from_slice::<Body>(body).ok()?));
    Some(Slot::Valid {
        generation: u64::from_le_bytes(*generation),
        state,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(epoch: u64, seq: u64) -> State {
        let member = |name: &str| MemberId {
            instance: InstanceName(name.to_owned()),
            incarnation: Incarnation(format!("life of {name}")),
        };
        State {
            incarnation: "5c5b".to_owned(),
            stage: Stage::Ready,
            told: Persisted {
                epoch,
                seq,
                told_epoch: epoch,
                primary: Some(member("shop-1")),
                baseline: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77:mainstay:1-3"
                    .parse()
                    .unwrap(),
                members: vec![member("shop-0"), member("shop-2")],
                acks_required: 1,
            },
            recovered: Some(Recovered {
                request: "wish".to_owned(),
                backup: "nightly-1".to_owned(),
                reached: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5".parse().unwrap(),
                time: None,
                completed_at: "2026-11-30T08:00:00Z".parse().unwrap(),
            }),
            ..State::default()
        }
    }

    fn file() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        (dir, path)
    }

    #[test]
    fn a_new_file_is_empty_and_preallocated() {
        let (_dir, path) = file();
        let (file, found) = StateFile::open(&path).unwrap();
        assert_eq!((found, file.state()), (Found::Nothing, &State::default()));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * SLOT as u64);
    }

    #[test]
    fn what_was_written_last_is_read() {
        let (_dir, path) = file();
        for round in 1..6 {
            let (mut file, _) = StateFile::open(&path).unwrap();
            file.write(state(round, 9)).unwrap();
            drop(file);
            let (file, found) = StateFile::open(&path).unwrap();
            assert_eq!((found, file.state()), (Found::State, &state(round, 9)));
        }
    }

    #[test]
    fn another_life_remembers_nothing_but_the_pair() {
        let mut state = state(4, 7);
        state.begin_life();
        assert_ne!(state.incarnation, "5c5b");
        assert_eq!(
            state.told,
            Persisted {
                epoch: 4,
                seq: 7,
                ..Persisted::default()
            }
        );
    }

    #[test]
    fn a_history_that_was_reset_is_another_life() {
        let mut state = state(4, 7);
        state.note_executed(&"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9".parse().unwrap());
        state.lose_history();
        assert_ne!(state.incarnation, "5c5b");
        assert!(state.history_reset && state.executed.is_empty() && state.told.told_epoch == 0);
        assert_eq!(state.stage, Stage::Cloned);
        state.begin_life();
        assert!(!state.history_reset, "a clone has the history of its donor");
    }

    #[test]
    fn what_an_older_version_wrote_has_no_history() {
        let former = Body::from(&state(4, 7));
        let mut json = serde_json::to_value(former).unwrap();
        let fields = json.as_object_mut().unwrap();
        fields.remove("executed");
        fields.remove("historyReset");
        let body: Body = serde_json::from_value(json).unwrap();
        assert_eq!(State::from(body), state(4, 7));
    }

    #[test]
    fn only_a_primary_without_members_stands_alone() {
        let own = InstanceName("shop-0".to_owned());
        let mut state = State {
            incarnation: "5c5b".to_owned(),
            ..State::default()
        };
        assert!(!state.stands_alone(&own), "it was told nothing");
        let member = |incarnation: &str| MemberId {
            instance: own.clone(),
            incarnation: Incarnation(incarnation.to_owned()),
        };
        state.told.primary = Some(member("5c5b"));
        assert!(state.stands_alone(&own));
        state.told.acks_required = 1;
        assert!(!state.stands_alone(&own));
        state.told.acks_required = 0;
        state.told.members.push(member("other"));
        assert!(!state.stands_alone(&own));
    }

    #[test]
    fn two_managers_do_not_share_a_volume() {
        let (_dir, path) = file();
        let (_first, _) = StateFile::open(&path).unwrap();
        assert!(matches!(StateFile::open(&path), Err(StateError::Locked { .. })));
    }

    #[test]
    fn a_newer_format_is_refused_with_its_version() {
        let (_dir, path) = file();
        let (mut file, _) = StateFile::open(&path).unwrap();
        file.write(state(1, 1)).unwrap();
        let body = br#"{"writtenBy":"9.0.0","somethingElse":[]}"#;
        let mut slot = MAGIC.to_vec();
        slot.extend_from_slice(&2_u32.to_le_bytes());
        slot.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        slot.extend_from_slice(&7_u64.to_le_bytes());
        let sum = checksum(&slot, body);
        slot.extend_from_slice(&sum);
        slot.extend_from_slice(body);
        file.file.as_ref().unwrap().write_all_at(&slot, SLOT as u64).unwrap();
        drop(file);
        let error = StateFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("9.0.0") && error.contains("format 2"), "{error}");
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let (_dir, path) = file();
        let (mut file, _) = StateFile::open(&path).unwrap();
        file.write(state(1, 1)).unwrap();
        let long = State {
            incarnation: "x".repeat(SLOT),
            ..state(2, 1)
        };
        assert!(matches!(file.write(long), Err(StateError::TooLong { .. })));
        assert_eq!(file.state(), &state(1, 1));
    }

    #[test]
    fn what_stands_for_a_file_that_cannot_be_opened_takes_nothing() {
        let (_dir, path) = file();
        let mut unknown = StateFile::unknown(&path);
        assert!(!unknown.is_known());
        assert!(matches!(unknown.write(state(1, 1)), Err(StateError::Unknown { .. })));
        assert_eq!(unknown.state(), &State::default());
        unknown.unlock();
        assert!(!path.exists());
        assert!(StateFile::open(&path).unwrap().0.is_known());
    }

    #[test]
    fn a_file_without_a_whole_slot_is_damage_and_not_nothing() {
        let (_dir, path) = file();
        std::fs::write(&path, b"garbage").unwrap();
        let (_, found) = StateFile::open(&path).unwrap();
        assert_eq!(found, Found::Damage);
    }

    proptest! {
        /// A crash in the middle of a write leaves any prefix of the new slot over the old one.
        #[test]
        fn a_torn_write_leaves_the_former_state(rounds in 1_u64..5, cut in 0_usize..700) {
            let (_dir, path) = file();
            let (mut file, _) = StateFile::open(&path).unwrap();
            for round in 1..=rounds {
                file.write(state(round, round)).unwrap();
            }
            let torn = write_slot(file.generation + 1, &state(99, 99)).unwrap();
            let cut = cut.min(torn.len() - 1);
            let offset = if (file.generation + 1) % 2 == 0 { SLOT as u64 } else { 0 };
            file.file.as_ref().unwrap().write_all_at(&torn[..cut], offset).unwrap();
            drop(file);
            let (file, found) = StateFile::open(&path).unwrap();
            prop_assert_eq!(found, Found::State);
            prop_assert_eq!(file.state(), &state(rounds, rounds));
        }

        /// One damaged byte anywhere: the state is the last one or the one before, and never anything else.
        #[test]
        fn a_damaged_byte_is_noticed(at in 0_usize..2 * SLOT, flip in 1_u8..=255) {
            let (_dir, path) = file();
            let (mut file, _) = StateFile::open(&path).unwrap();
            for round in 1..=4 {
                file.write(state(round, 0)).unwrap();
            }
            drop(file);
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[at] ^= flip;
            std::fs::write(&path, &bytes).unwrap();
            let (file, found) = StateFile::open(&path).unwrap();
            prop_assert_eq!(found, Found::State);
            prop_assert!(file.state() == &state(4, 0) || file.state() == &state(3, 0));
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let (_dir, path) = file();
            std::fs::write(&path, &bytes).unwrap();
            let (_, found) = StateFile::open(&path).unwrap();
            prop_assert_eq!(found, Found::Damage);
        }
    }
}
