//! The page that says how far a backup is, and the reader of it.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use mainstay_core::backup::plan::Progress;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::progress::Course;
use crate::local::ask_on;
use crate::tls;

/// Serves it until the task is aborted.
pub(crate) async fn serve(address: SocketAddr, course: Arc<Course>) -> std::io::Result<JoinHandle<()>> {
    let listener = tls::listen(address).await?;
    let pages = Router::new()
        .route("/status", get(status))
        // Its runtime turns: that is all that it says.
        .route("/live", get(|| async { "the program runs\n" }))
        .with_state(course);
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, pages).await {
            tracing::error!(%error, "the page is not served any more");
        }
    }))
}

async fn status(State(course): State<Arc<Course>>) -> impl IntoResponse {
    // Numbers and a word can always be written.
    let text = serde_json::to_string(&course.progress()).unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], text)
}

/// How far the backup is that is made behind this address. The caller limits the time.
///
/// # Errors
/// Why that cannot be read.
pub async fn read(address: SocketAddr) -> Result<Progress, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let text = ask_on(stream, "GET", "/status").await?;
    serde_json::from_str(&text).map_err(|error| format!("it is no progress: {error}"))
}

#[cfg(test)]
mod tests {
    use mainstay_core::backup::plan::BackupStep;

    use super::*;

    #[tokio::test]
    async fn what_is_shown_is_read() {
        let course = Arc::new(Course::default());
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let served = serve(free, Arc::clone(&course)).await.unwrap();
        course.begin(BackupStep::Upload, Some(10));
        course.done(4, None);
        let progress = read(free).await.unwrap();
        assert_eq!(
            (progress.step, progress.bytes, progress.total),
            (BackupStep::Upload, 4, Some(10))
        );
        served.abort();
        drop(served.await);
        assert!(read(free).await.is_err());
    }
}
