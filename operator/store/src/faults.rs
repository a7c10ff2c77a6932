//! How the store in memory is told to fail.

/// What a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`crate::Store::put`].
    Put,
    /// [`crate::Store::put_stream`].
    PutStream,
    /// [`crate::Store::get`].
    Get,
    /// [`crate::Store::get_stream`].
    GetStream,
    /// [`crate::Store::head`].
    Head,
    /// [`crate::Store::list`].
    List,
    /// [`crate::Store::delete`] and [`crate::Store::delete_all`].
    Delete,
    /// [`crate::Store::incomplete`].
    Incomplete,
    /// [`crate::Store::abort`].
    Abort,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer; nothing was done.
    Unreachable,
    /// It is done, and the answer is lost.
    AnswerLost,
    /// Access denied; nothing was done.
    Denied,
    /// The bucket is gone.
    NoSuchBucket,
    /// A stream breaks for good after so many bytes. An upload stays unfinished, as when its process dies.
    Cut(u64),
    /// A bit of this byte is flipped: in what is stored, or in what is given. Nothing happens if there is no such byte.
    Flip(u64),
}

/// A failure to come, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Of which operation.
    pub operation: Operation,
    /// Of which of its calls, counted from now: 1 is the next one.
    pub nth: u32,
    /// How.
    pub failure: Failure,
}
