//! Pages of what is stored, and of what was begun.

use futures::StreamExt as _;
use futures::stream::{self, BoxStream, TryStreamExt as _};
use mainstay_core::backup::{Folder, Key};

use super::{S3, size, time};
use crate::error::StoreError;
use crate::port::{Depth, Entry, Incomplete, Listing, ObjectInfo};

const WHAT: &str = "list";

/// Where a listing goes on.
enum Page {
    First,
    Next(String),
    Done,
}

pub(super) fn entries(store: &S3, listing: Listing) -> BoxStream<'_, Result<Entry, StoreError>> {
    stream::try_unfold((Page::First, listing), move |(page, listing)| async move {
        let token = match page {
            Page::First => None,
            Page::Next(token) => Some(token),
            Page::Done => return Ok(None),
        };
        let (entries, next) = one_page(store, &listing, token).await?;
        Ok(Some((stream::iter(entries.into_iter().map(Ok)), (next, listing))))
    })
    .try_flatten()
    .boxed()
}

async fn one_page(store: &S3, listing: &Listing, token: Option<String>) -> Result<(Vec<Entry>, Page), StoreError> {
    let folder = store.full_folder(&listing.folder);
    let after = listing.after.as_ref().filter(|_| token.is_none());
    let answer = store
        .client
        .list_objects_v2()
        .bucket(&*store.bucket)
        .prefix(&folder)
        .set_delimiter((listing.depth == Depth::Shallow).then(|| "/".to_owned()))
        .set_start_after(after.map(|key| store.full(key)))
        .set_continuation_token(token)
        .send()
        .await
        .map_err(|error| store.fault(WHAT, &folder, &error))?;
    let objects = answer.contents().iter().filter_map(|object| {
        let key = store.relative(object.key()?)?;
        Some(Entry::Object(ObjectInfo {
            key,
            size: size(object.size()),
            modified: time(object.last_modified()),
        }))
    });
    let folders = answer.common_prefixes().iter().filter_map(|folder| {
        let relative = folder.prefix()?.strip_prefix(store.prefix.as_str())?;
        Folder::parse(relative).ok().map(Entry::Folder)
    });
    let mut entries: Vec<Entry> = objects.chain(folders).collect();
    // Objects and folders come as two lists.
    entries.sort_by(|a, b| name(a).cmp(name(b)));
    let next = match answer.next_continuation_token() {
        Some(token) if answer.is_truncated() == Some(true) => Page::Next(token.to_owned()),
        _ => Page::Done,
    };
    Ok((entries, next))
}

fn name(entry: &Entry) -> &str {
    match entry {
        Entry::Object(object) => object.key.as_str(),
        Entry::Folder(folder) => folder.as_str(),
    }
}

pub(super) async fn incomplete(store: &S3, folder: &Folder) -> Result<Vec<Incomplete>, StoreError> {
    let full = store.full_folder(folder);
    let (mut key_marker, mut id_marker) = (None, None);
    let mut found = Vec::new();
    loop {
        let answer = store
            .client
            .list_multipart_uploads()
            .bucket(&*store.bucket)
            .prefix(&full)
            .set_key_marker(key_marker)
            .set_upload_id_marker(id_marker)
            .send()
            .await
            .map_err(|error| store.fault("list unfinished uploads to", &full, &error))?;
        found.extend(answer.uploads().iter().filter_map(|upload| {
            let key: Key = store.relative(upload.key()?).filter(|key| folder.holds(key))?;
            Some(Incomplete {
                key,
                id: upload.upload_id()?.to_owned(),
                begun: time(upload.initiated()),
            })
        }));
        if answer.is_truncated() != Some(true) || answer.next_key_marker().is_none() {
            return Ok(found);
        }
        key_marker = answer.next_key_marker().map(str::to_owned);
        id_marker = answer.next_upload_id_marker().map(str::to_owned);
    }
}
