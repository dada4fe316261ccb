//! A service that fails is started again, from what it had kept; the others never notice.

use std::future::Future;
use std::time::Duration;

/// The pause before a new start: a panic that comes at once must not fill the log.
pub const BACKOFF: Duration = Duration::from_secs(1);

/// Runs what `start` makes until it ends well. After an error or a panic, says so to `failed` and
/// starts anew after `backoff`.
pub async fn keep_running<F>(
    backoff: Duration,
    mut start: impl FnMut() -> F,
    mut failed: impl FnMut(&str),
) where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    loop {
        match tokio::spawn(start()).await {
            Ok(Ok(())) => return,
            Ok(Err(why)) => failed(&why),
            Err(error) if error.is_panic() => failed(&message(error)),
            // The runtime is ending.
            Err(_) => return,
        }
        tokio::time::sleep(backoff).await;
    }
}

fn message(panic: tokio::task::JoinError) -> String {
    let payload = panic.into_panic();
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.as_deref().unwrap_or("no message"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    #[tokio::test]
    async fn a_panic_and_an_error_are_reported_and_followed_by_a_restart() {
        let starts = Arc::new(AtomicU32::new(0));
        let mut told = Vec::new();
        let start = || {
            let nth = starts.fetch_add(1, SeqCst);
            async move {
                assert!(nth != 0, "start {nth}");
                if nth == 1 { Err("broke".to_owned()) } else { Ok(()) }
            }
        };
        keep_running(Duration::ZERO, start, |why| told.push(why.to_owned())).await;
        assert_eq!(starts.load(SeqCst), 3);
        assert_eq!(told, ["panicked: start 0", "broke"]);
    }
}
