//! The application of the HAProxy study: made, served and removed.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, Interrupt};
use plimsoll_real::cgroup::Cgroups;
use plimsoll_real::wordpress::{GET, Instances, Site, WordPressError, costs, down, missing, up};

fn queried(dir: &std::path::Path, query: &str) -> u64 {
    let socket = format!("--socket={}", dir.join("run/mysql.sock").display());
    let mut command = Command::new("mariadb");
    let out = command.args(["--no-defaults", &socket, "--user=root", "-N", "-e", query]).output();
    String::from_utf8(out.unwrap().stdout).unwrap().trim().parse().unwrap()
}

fn comments(dir: &std::path::Path) -> u64 {
    queried(dir, "SELECT COUNT(*) FROM wordpress.wp_comments")
}

/// How many comments there ever were.
fn ever(dir: &std::path::Path) -> u64 {
    let query =
        "SELECT AUTO_INCREMENT FROM information_schema.TABLES WHERE TABLE_NAME = 'wp_comments'";
    queried(dir, query) - 1
}

fn get(url: &str) -> String {
    let out = Command::new("curl").args(["-s", "-m", "60", url]).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn a_site_is_made_serves_forgets_its_posts_and_is_removed() {
    let missing = missing();
    if !missing.is_empty() {
        eprintln!("skipped: {}", missing.join("; "));
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("site");
    up(&dir).unwrap();
    assert!(matches!(up(&dir), Err(WordPressError::Directory { .. })), "there is one already");
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    {
        let cgroups = Cgroups::open().unwrap();
        let family = Family::start().unwrap();
        let mut site = Site::start(&family, &dir).unwrap();
        for refused in [Site::start(&family, &dir).map(|_| ()), down(&dir)] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("in use by another command"), "{text}");
        }
        site.check().unwrap();
        let before = comments(&dir);
        // 1 of WordPress' own, and 6 + 12 + 18 + 24 + 30 of the pages.
        assert_eq!(before, 91);
        let never = Interrupt::never();
        let instances = Instances::start(&family, &cgroups, &site, &[0.5, 0.5], 7, &never);
        let instances = instances.unwrap();
        let ever_before = ever(&dir);
        let all = costs(&instances, 1, &never).unwrap();
        assert!(all.len() == 2 && all.iter().all(|costs| costs.len() == 10), "{all:?}");
        assert!(all.iter().flatten().all(|cost| cost.cpu_ms > 0.0), "{all:?}");
        assert_eq!(
            ever(&dir) - ever_before,
            20,
            "each POST, made twice by each, was a comment for a moment"
        );
        let title = |path: &str| {
            let url = format!("http://{}{path}", instances.addresses()[0].1);
            let page = get(&url);
            let from = page.find("<title>").unwrap_or_else(|| panic!("{path}: {page}"));
            page[from..].lines().next().unwrap().to_owned()
        };
        for (id, path) in (1..).zip(GET) {
            let (asked, title) = (format!("{path}?id={id}"), title(&format!("{path}?id={id}")));
            assert!(!title.contains("Error") && !title.contains("not found"), "{asked}: {title}");
        }
        assert_eq!(title("/~any-name/page-3/?id=1"), title("/page-3/"), "a page by another name");
        assert_ne!(title("/page-3/"), title("/page-5/"));
        assert_eq!(comments(&dir), before, "what was posted is removed as it is processed");
        let pid = std::fs::read_to_string(dir.join("run/mysql.pid")).unwrap();
        assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
        let end = Instant::now() + Duration::from_secs(10);
        while site.check().is_ok() {
            assert!(Instant::now() < end, "the death of the database goes unnoticed");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    down(&dir).unwrap();
    assert!(!dir.exists());
}

#[test]
fn a_site_whose_making_was_interrupted_is_not_served_and_can_be_removed() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("site");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("plimsoll-wordpress"), "unfinished: half of it is missing\n").unwrap();
    let family = Family::start().unwrap();
    let error = Site::start(&family, &dir).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("the site is unfinished"), "{error}");
    down(&dir).unwrap();
    assert!(!dir.exists());
}

#[test]
fn only_its_own_directory_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("precious"), "x").unwrap();
    assert!(matches!(down(dir.path()), Err(WordPressError::Directory { .. })));
    assert!(dir.path().join("precious").exists());
}
