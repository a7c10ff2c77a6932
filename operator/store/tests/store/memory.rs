//! The store in memory, and its faults.

use jiff::Timestamp;
use mainstay_store::backup::Key;
use mainstay_store::{Existing, Failure, Fault, Memory, Operation, Span, Store, StoreError};
use tokio::io::AsyncReadExt as _;

use crate::conformance::{self, REPLACE, body, folder};

fn key() -> Key {
    folder("faults").key("object").unwrap()
}

fn next(operation: Operation, failure: Failure) -> Fault {
    Fault {
        operation,
        nth: 1,
        failure,
    }
}

#[tokio::test]
async fn conforms() {
    conformance::all(&Memory::new()).await;
}

#[tokio::test]
async fn the_nth_call_fails_and_no_other() {
    let store = Memory::new();
    store.inject(Fault {
        operation: Operation::Put,
        nth: 2,
        failure: Failure::Unreachable,
    });
    store.put(&key(), "1".into(), Existing::Replace).await.unwrap();
    let failed = store.put(&key(), "2".into(), Existing::Replace).await.unwrap_err();
    assert!(failed.may_pass(), "{failed}");
    assert_eq!(store.get(&key(), 1).await.unwrap(), "1");
    store.put(&key(), "3".into(), Existing::Replace).await.unwrap();
}

#[tokio::test]
async fn an_answer_is_lost_and_the_effect_is_not() {
    let store = Memory::new();
    store.inject(next(Operation::Put, Failure::AnswerLost));
    let failed = store.put(&key(), "1".into(), Existing::Keep).await.unwrap_err();
    assert!(matches!(failed, StoreError::Unreachable { .. }), "{failed}");
    assert_eq!(store.get(&key(), 1).await.unwrap(), "1");
}

#[tokio::test]
async fn a_stream_breaks() {
    let store = Memory::new();
    store.put(&key(), "0123456789".into(), Existing::Keep).await.unwrap();
    store.inject(next(Operation::GetStream, Failure::Cut(4)));
    let mut download = store.get_stream(&key(), Span::ALL).await.unwrap();
    let mut content = Vec::new();
    let error = download.body.read_to_end(&mut content).await.unwrap_err();
    assert_eq!(content, b"0123");
    assert!(
        matches!(StoreError::of(&error), Some(StoreError::Unreachable { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn a_bit_flips() {
    let store = Memory::new();
    store.inject(next(Operation::Put, Failure::Flip(0)));
    store.put(&key(), "0123".into(), Existing::Keep).await.unwrap();
    assert!(matches!(store.get(&key(), 10).await, Err(StoreError::Corrupt { .. })));
    assert_eq!(conformance::read(&store, &key(), Span::ALL).await, b"1123");
}

#[tokio::test]
async fn an_upload_that_died_is_found_and_aborted() {
    let store = Memory::with_clock(|| Timestamp::from_second(1000).unwrap());
    store.inject(next(Operation::PutStream, Failure::Cut(3)));
    store.put_stream(&key(), body("0123456789"), REPLACE).await.unwrap_err();
    assert!(store.head(&key()).await.is_err());
    let left = store.incomplete(&folder("faults")).await.unwrap();
    assert_eq!(
        (left.len(), left[0].key.clone(), left[0].begun.as_second()),
        (1, key(), 1000)
    );
    assert_eq!(store.incomplete(&folder("faults-2")).await.unwrap(), []);
    let at = |second| Timestamp::from_second(second).unwrap();
    assert_eq!(store.abort_before(&folder("faults"), at(1000)).await.unwrap(), 0);
    assert_eq!(store.abort_before(&folder("faults"), at(1001)).await.unwrap(), 1);
    assert_eq!(store.incomplete(&folder("faults")).await.unwrap(), []);
}
