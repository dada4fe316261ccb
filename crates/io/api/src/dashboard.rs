//! The page at `/`: three files inside the binary, nothing from elsewhere.

use axum::Router;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::routing::get;

use crate::hub::Hub;

const HTML: &str = include_str!("dashboard/index.html");
const CSS: &str = include_str!("dashboard/dashboard.css");
const JS: &str = include_str!("dashboard/dashboard.js");

/// The page and its two parts.
pub fn router() -> Router<Hub> {
    Router::new()
        .route("/", get(|| async { file("text/html; charset=utf-8", HTML) }))
        .route("/dashboard.css", get(|| async { file("text/css; charset=utf-8", CSS) }))
        .route("/dashboard.js", get(|| async { file("text/javascript; charset=utf-8", JS) }))
}

fn file(
    media: &'static str,
    text: &'static str,
) -> ([(HeaderName, &'static str); 1], &'static str) {
    ([(CONTENT_TYPE, media)], text)
}
