//! php-fpm behind nginx: the files that one such server needs.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use plimsoll_lanes::{find_program, nginx_temporary_paths, program_places};

use crate::Pool;
use crate::make::Program;

/// Burns CPU by the process's own CPU time, as the lab's own server does by its threads'.
const SCRIPT: &str = include_str!("server.php");

/// php-fpm, then nginx: what is started for one server. Their files are all in `dir`.
///
/// # Errors
/// When a file cannot be written.
pub fn programs(
    nginx: &Path,
    fpm: &Path,
    pool: &Pool,
    address: SocketAddr,
    dir: &Path,
) -> io::Result<Vec<Program>> {
    let file = |name: &str| dir.join(name);
    let (nginx_conf, fpm_conf) = (file("nginx.conf"), file("php-fpm.conf"));
    fs::write(file("server.php"), SCRIPT)?;
    fs::write(&nginx_conf, nginx_configuration(pool, address, dir))?;
    fs::write(&fpm_conf, fpm_of_server(pool.threads, dir, ""))?;
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    // No php.ini but PHP's own defaults; as root, like everything that the lab starts.
    let mut fpm_arguments = words(&["-n", "-F", "-R", "-y"]);
    fpm_arguments.push(fpm_conf.into());
    let mut nginx_arguments = words(&["-e", "stderr", "-p"]);
    nginx_arguments.extend([dir.into(), "-c".into(), nginx_conf.into()]);
    Ok(vec![
        Program { path: fpm.to_owned(), arguments: fpm_arguments },
        Program { path: nginx.to_owned(), arguments: nginx_arguments },
    ])
}

/// The work that requests bring along or the script is given.
fn nginx_configuration(pool: &Pool, address: SocketAddr, dir: &Path) -> String {
    let (work_us, health_us) = (pool.work.mean.as_micros(), pool.health_work.as_micros());
    let socket = format!("unix:{}/php.sock", dir.display());
    let script = format!("{}/server.php", dir.display());
    let parameters = fastcgi_parameters(&[
        ("SCRIPT_FILENAME", &script),
        ("REQUEST_METHOD", "$request_method"),
        ("DOCUMENT_URI", "$document_uri"),
        ("QUERY_STRING", "$query_string"),
        ("WORK_US", &work_us.to_string()),
        ("HEALTH_US", &health_us.to_string()),
    ]);
    let server = format!(
        "        location / {{
            fastcgi_pass {socket};
{parameters}        }}
"
    );
    nginx_of_server(address, dir, "", &server)
}

/// Lines that tell FastCGI's server these values.
pub fn fastcgi_parameters(all: &[(&str, &str)]) -> String {
    let line =
        |(name, value): &(&str, &str)| format!("            fastcgi_param {name} {value};\n");
    all.iter().map(line).collect()
}

/// A master and one worker, which asks php-fpm anew for every request, as the packages are set up. Nothing
/// of the system's own nginx is touched: a directory that is not named here would change hands. `http` and
/// `server` are lines of these sections.
pub fn nginx_of_server(address: SocketAddr, dir: &Path, http: &str, server: &str) -> String {
    let temporary = nginx_temporary_paths(dir);
    format!(
        "user root;
daemon off;
worker_processes 1;
pid {}/nginx.pid;
error_log stderr;
events {{ worker_connections 4096; }}
http {{
    access_log off;
{temporary}    keepalive_timeout 120s;
    keepalive_requests 1000000;
{http}    server {{
        listen {address};
{server}    }}
}}
",
        dir.display()
    )
}

/// A pool of so many processes, which all live as long as the server; `more` are further lines of it.
pub fn fpm_of_server(processes: usize, dir: &Path, more: &str) -> String {
    let dir = dir.display();
    // Its standard error is the run's log.
    format!(
        "[global]
error_log = /proc/self/fd/2
[lab]
user = root
group = root
listen = {dir}/php.sock
listen.backlog = 4096
pm = static
pm.max_children = {processes}
php_admin_value[max_execution_time] = 0
{more}"
    )
}

/// php-fpm by its own name, or the highest version that Debian names: php-fpm8.2.
pub fn find_fpm() -> Option<PathBuf> {
    newest_fpm(program_places())
}

fn newest_fpm(places: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let programs = places.flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
    let versioned = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let version = name.strip_prefix("php-fpm")?;
        // One without a version is what the administrator chose.
        let version: Option<Vec<u32>> = match version {
            "" => Some(vec![u32::MAX]),
            text => text.split('.').map(|part| part.parse().ok()).collect(),
        };
        let program = find_program(&name, entry.path().parent().map(Path::to_owned).into_iter());
        Some((version?, program?))
    };
    programs.filter_map(versioned).max().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_newest_php_fpm_is_taken_unless_one_has_no_version() {
        let dir = tempfile::tempdir().unwrap();
        let found = || {
            let path = newest_fpm([dir.path().to_owned()].into_iter())?;
            Some(path.file_name()?.to_str()?.to_owned())
        };
        assert_eq!(found(), None);
        let install = |name: &str, mode: u32| {
            let file = dir.path().join(name);
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        };
        for name in ["php-fpm8.2", "php-fpm7.4", "php-fpm8.10", "php-fpm-check", "php8.3"] {
            install(name, 0o755);
        }
        install("php-fpm9.0", 0o644);
        assert_eq!(found().as_deref(), Some("php-fpm8.10"));
        install("php-fpm", 0o755);
        assert_eq!(found().as_deref(), Some("php-fpm"));
    }
}
