//! Five GETs and five POSTs of the site, and what each costs.

use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use plimsoll_lanes::{Interrupt, LaneError};
use plimsoll_testbed::load::{self, Arrivals, Asked, LoadSpec, Target};
use serde::Serialize;

use super::{Instances, WordPressError};
use crate::RealError;

/// The paths of the five GETs: the front page, pages of unequal length, the feed.
pub const GET: [&str; 5] = ["/", "/page-1/", "/page-3/", "/page-5/", "/feed/"];
/// The site's first post is WordPress' own, of number 1; pages have those that the installation gave them.
const FIRST_PAGE: u32 = 4;

/// The GETs.
pub fn gets() -> Vec<Asked> {
    GET.map(|path| Asked { path: path.into(), body: Vec::new() }).into()
}

/// The POSTs: a comment to each page. All have the path of WordPress' form, and each is removed by the site as
/// soon as it is processed.
pub fn posts() -> Vec<Asked> {
    let post = |page: u32| Asked {
        path: "/wp-comments-post.php".into(),
        body: format!(
            "comment=It+is+answered+within+its+deadline.&author=Reader&email=reader%40lab.example&\
             comment_post_ID={}",
            FIRST_PAGE + page
        )
        .into_bytes(),
    };
    (0..5).map(post).collect()
}

/// The header that a form's body needs.
pub const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

/// What one kind of request costs the instance that serves it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// GET or POST.
    pub method: &'static str,
    /// Its path, and of a POST the page.
    pub what: String,
    /// CPU time of the instance, milliseconds a request.
    pub cpu_ms: f64,
}

/// What each kind costs each instance, all instances at once.
///
/// # Errors
/// When a request is not answered as it should, or when interrupted.
pub fn costs(
    instances: &Instances,
    times: u32,
    interrupt: &Interrupt,
) -> Result<Vec<Vec<Cost>>, WordPressError> {
    std::thread::scope(|scope| {
        let of = |instance| scope.spawn(move || costs_of(instances, instance, times, interrupt));
        let running: Vec<_> = (0..instances.addresses().len()).map(of).collect();
        let costs = running.into_iter().map(ScopedJoinHandle::join);
        costs.map(|costs| costs.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Lets an instance serve each kind this often, one at a time, and reads its CPU time.
fn costs_of(
    instances: &Instances,
    instance: usize,
    times: u32,
    interrupt: &Interrupt,
) -> Result<Vec<Cost>, WordPressError> {
    let address = instances.addresses()[instance].1;
    let mut all = Vec::new();
    let kinds = gets().into_iter().map(|asked| ("GET", asked));
    let kinds = kinds.chain(posts().into_iter().map(|asked| ("POST", asked)));
    for (method, asked) in kinds {
        let what = match method {
            "POST" => format!("{} to page {}", asked.path, all.len() - 4),
            _ => asked.path.clone(),
        };
        // Once for its caches.
        serve(address, method, &asked, 1, interrupt)?;
        let before = instances.cpu_used()?[instance];
        serve(address, method, &asked, times, interrupt)?;
        let used = instances.cpu_used()?[instance].saturating_sub(before);
        all.push(Cost { method, what, cpu_ms: used.as_secs_f64() * 1e3 / f64::from(times) });
    }
    Ok(all)
}

/// Lets every instance serve each kind once.
pub(super) fn warm_up(instances: &Instances, interrupt: &Interrupt) -> Result<(), WordPressError> {
    for (_, address) in instances.addresses() {
        for asked in gets() {
            serve(address, "GET", &asked, 1, interrupt)?;
        }
        for asked in posts() {
            serve(address, "POST", &asked, 1, interrupt)?;
        }
    }
    Ok(())
}

fn serve(
    address: std::net::SocketAddr,
    method: &str,
    asked: &Asked,
    times: u32,
    interrupt: &Interrupt,
) -> Result<(), WordPressError> {
    for _ in 0..times {
        if interrupt.came() {
            return Err(RealError::Interrupted.into());
        }
        let target = Target::resolve(&format!("http://{address}/"))
            .map_err(|problem| LaneError::from(load::LoadError::Invalid(vec![problem])))?;
        // A closed loop of one that ends within its first request.
        let mut spec = LoadSpec::poisson(target, 1.0, Duration::from_millis(1));
        (spec.arrivals, spec.concurrency) = (Arrivals::Closed, Some(1));
        (spec.method, spec.mix) = (method.to_owned(), vec![asked.clone()]);
        spec.timeout = Duration::from_secs(60);
        spec.headers = vec![(FORM.0.to_owned(), FORM.1.to_owned())];
        let load = load::start(spec).map_err(LaneError::from)?;
        let report = load.join().map_err(LaneError::from)?;
        if report.total.errors > 0 {
            let what = format!("serve {method} {}", asked.path);
            let why = report.first_error.unwrap_or_default();
            return Err(WordPressError::File { what, source: std::io::Error::other(why) });
        }
    }
    Ok(())
}
