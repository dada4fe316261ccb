//! The directory: how it is made, run and removed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, LaneError, Member, find_program, program_places};

use crate::cgroup::Cgroups;
use crate::{RealError, php};

/// Where Debian's package has the application.
const PACKAGE: &str = "/usr/share/wordpress";
/// What tells a directory of ours from any other.
const MARK: &str = "plimsoll-wordpress";
/// What it says of a site that is whole, and of one whose making was interrupted.
const WHOLE: &str = "made by plimsoll-lab wordpress up; plimsoll-lab wordpress down removes it\n";
const UNFINISHED: &str = "unfinished: plimsoll-lab wordpress down removes it\n";
const CONFIG: &str = include_str!("files/wp-config.php");
const PLUGIN: &str = include_str!("files/lab.php");
const INSTALL: &str = include_str!("files/install.php");
/// Its first start makes files.
const DATABASE_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why there is no site.
#[derive(Debug, thiserror::Error)]
pub enum WordPressError {
    /// Everything that is needed and not there.
    #[error("WordPress cannot run here: {}", .0.join("; "))]
    Missing(Vec<String>),
    /// The directory is somebody's.
    #[error("{}: {what}", dir.display())]
    Directory {
        /// Which.
        dir: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A program that makes the site has failed.
    #[error("{program} failed ({status}): {said}")]
    Failed {
        /// Which.
        program: &'static str,
        /// Its exit status.
        status: String,
        /// The end of what it wrote.
        said: String,
    },
    /// The database does not answer.
    #[error("MariaDB does not answer on {}", .0.display())]
    Mute(PathBuf),
    /// Files.
    #[error("cannot {what}: {source}")]
    File {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// Servers, control groups or clients.
    #[error(transparent)]
    Real(#[from] RealError),
    /// A process.
    #[error(transparent)]
    Lane(#[from] LaneError),
}

impl WordPressError {
    /// For `map_err`.
    pub(super) fn file(what: impl Into<String>) -> impl FnOnce(io::Error) -> WordPressError {
        let what = what.into();
        move |source| WordPressError::File { what, source }
    }
}

/// What was looked for.
struct Found<'a> {
    has_program: &'a dyn Fn(&str) -> bool,
    has_fpm: bool,
    has_application: bool,
    has_theme: bool,
    has_mysqli: bool,
    /// Why there are no control groups with quotas; nothing where there are.
    no_groups: Option<String>,
}

/// Everything that is needed and missing, with what helps; empty when WordPress can run.
pub fn missing() -> Vec<String> {
    let modules = Command::new("php").args(["-m"]).stdin(Stdio::null()).output();
    lacking(&Found {
        has_program: &|name| find_program(name, program_places()).is_some(),
        has_fpm: php::find_fpm().is_some(),
        has_application: Path::new(PACKAGE).join("wp-settings.php").exists(),
        has_theme: has_theme(),
        has_mysqli: modules
            .is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("mysqli")),
        no_groups: match rustix::process::geteuid().is_root() {
            true => Cgroups::open().err().map(|error| error.to_string()),
            false => Some("control groups with quotas need root".to_owned()),
        },
    })
}

fn lacking(found: &Found) -> Vec<String> {
    let programs = [
        ("nginx", "nginx-light"),
        ("php", "php-cli"),
        ("mariadbd", "mariadb-server"),
        ("mariadb-install-db", "mariadb-server"),
        ("mariadb", "mariadb-client"),
    ];
    let absent = programs.into_iter().filter(|(name, _)| !(found.has_program)(name));
    let mut lines: Vec<String> = absent
        .map(|(name, package)| format!("{name} is not installed: apt-get install {package}"))
        .collect();
    let others = [
        (found.has_fpm, "php-fpm is not installed: apt-get install php-fpm".to_owned()),
        (found.has_application, format!("{PACKAGE} is not there: apt-get install wordpress")),
        (
            found.has_theme,
            format!(
                "{PACKAGE} has none of WordPress' own themes: apt-get install wordpress-theme-twentytwentythree"
            ),
        ),
        (found.has_mysqli, "PHP lacks mysqli: apt-get install php-mysql".to_owned()),
    ];
    lines.extend(others.into_iter().filter(|(is_there, _)| !is_there).map(|(_, line)| line));
    lines.extend(found.no_groups.clone());
    lines
}

/// Refuses where [`missing`] finds something.
fn require() -> Result<(), WordPressError> {
    let missing = missing();
    if missing.is_empty() { Ok(()) } else { Err(WordPressError::Missing(missing)) }
}

/// Whether one of those is there that WordPress takes by itself; Debian only recommends them.
fn has_theme() -> bool {
    let Ok(themes) = fs::read_dir(Path::new(PACKAGE).join("wp-content/themes")) else {
        return false;
    };
    let is_own = |name: &str| name.starts_with("twenty");
    themes.flatten().any(|theme| {
        theme.file_name().to_str().is_some_and(is_own) && theme.path().join("style.css").exists()
    })
}

/// Makes a site in this directory, which must not exist or be empty: the application, a database with five
/// pages and their comments. Root alone can enter it, as its database asks for no password. Takes some 20 s; nothing
/// runs afterwards.
///
/// # Errors
/// When something is missing (all of it is named), or a step fails; what was made so far is removed then.
pub fn up(dir: &Path) -> Result<(), WordPressError> {
    require()?;
    if !is_free(dir) {
        let what = if dir.join(MARK).exists() {
            "there is a site already; `wordpress down` removes it"
        } else {
            "expected a directory that is empty or not there yet"
        };
        return Err(WordPressError::Directory { dir: dir.to_owned(), what });
    }
    fs::create_dir_all(dir)
        .and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(0o700)))
        .map_err(WordPressError::file(format!("make {}", dir.display())))?;
    let dir = fs::canonicalize(dir).map_err(WordPressError::file("find the directory"))?;
    let mark = |text| {
        fs::write(dir.join(MARK), text).map_err(WordPressError::file("write to the directory"))
    };
    mark(UNFINISHED)?;
    let lock = lock(&dir)?;
    let made = make(&dir).and_then(|()| mark(WHOLE));
    drop(lock);
    if made.is_err() {
        // The first error is the one to tell.
        let _ = down(&dir);
    }
    made
}

fn make(dir: &Path) -> Result<(), WordPressError> {
    for part in ["run", "log"] {
        fs::create_dir_all(dir.join(part)).map_err(WordPressError::file(format!("make {part}")))?;
    }
    let site = dir.join("site");
    // Debian's tree has links into directories of its own: they become files.
    finish("cp", Command::new("cp").arg("-rL").arg(PACKAGE).arg(&site))?;
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).map_err(WordPressError::file(format!("write {}", path.display())))
    };
    write(site.join("wp-config.php"), CONFIG)?;
    let plugins = site.join("wp-content/mu-plugins");
    fs::create_dir_all(&plugins).map_err(WordPressError::file("make a directory for plugins"))?;
    write(plugins.join("lab.php"), PLUGIN)?;
    write(dir.join("install.php"), INSTALL)?;
    write(dir.join("my.cnf"), &database_configuration(dir))?;
    let data = format!("--datadir={}", dir.join("mysql").display());
    let mut install = Command::new(program("mariadb-install-db")?);
    install.args(["--no-defaults", "--user=root", &data, "--skip-test-db"]);
    finish("mariadb-install-db", install.arg("--auth-root-authentication-method=normal"))?;
    let family = Family::start()?;
    let _database = start_database(&family, dir)?;
    let socket = format!("--socket={}", dir.join("run/mysql.sock").display());
    let create = "CREATE DATABASE wordpress CHARACTER SET utf8mb4";
    finish(
        "mariadb",
        Command::new(program("mariadb")?).args([
            "--no-defaults",
            &socket,
            "--user=root",
            "-e",
            create,
        ]),
    )?;
    finish("php", Command::new(program("php")?).arg(dir.join("install.php")).arg(&site))?;
    Ok(())
}

/// Removes a site that [`up`] made, or began to make.
///
/// # Errors
/// When the directory is not one of ours, is in use, or cannot be removed.
pub fn down(dir: &Path) -> Result<(), WordPressError> {
    is_ours(dir)?;
    let _lock = lock(dir)?;
    fs::remove_dir_all(dir).map_err(WordPressError::file(format!("remove {}", dir.display())))
}

fn is_ours(dir: &Path) -> Result<(), WordPressError> {
    match fs::metadata(dir.join(MARK)) {
        Ok(mark) if mark.is_file() => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(WordPressError::file("look into the directory")(error));
        }
        _ => {}
    }
    let what = "no site is here; `plimsoll-lab wordpress up` makes one";
    Err(WordPressError::Directory { dir: dir.to_owned(), what })
}

/// Keeps others from the site for as long as it is held: two databases in one directory destroy it.
fn lock(dir: &Path) -> Result<File, WordPressError> {
    let file = File::open(dir.join(MARK)).map_err(WordPressError::file("open the site's mark"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(WordPressError::Directory {
            dir: dir.to_owned(),
            what: "the site is in use by another command",
        }),
        Err(TryLockError::Error(error)) => Err(WordPressError::file("lock the site")(error)),
    }
}

/// Takes a whole site for oneself, for as long as the file is held.
fn take(dir: &Path) -> Result<File, WordPressError> {
    is_ours(dir)?;
    let lock = lock(dir)?;
    let mark = fs::read_to_string(dir.join(MARK));
    if mark.map_err(WordPressError::file("read the site's mark"))? == WHOLE {
        return Ok(lock);
    }
    let what = "the site is unfinished; `wordpress down`, then `wordpress up` make it anew";
    Err(WordPressError::Directory { dir: dir.to_owned(), what })
}

/// Whether [`up`] can make a site here: the directory is empty or not there yet.
pub fn is_free(dir: &Path) -> bool {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether there is a site that can be started, or room for one.
///
/// # Errors
/// When the directory is not ours, the site is unfinished or in use.
pub fn check_place(dir: &Path) -> Result<(), WordPressError> {
    if is_free(dir) { Ok(()) } else { take(dir).map(drop) }
}

/// A program that [`missing`] has found.
pub(super) fn program(name: &'static str) -> Result<PathBuf, WordPressError> {
    find_program(name, program_places())
        .ok_or_else(|| WordPressError::Missing(vec![format!("{name} is not installed")]))
}

fn finish(program: &'static str, command: &mut Command) -> Result<(), WordPressError> {
    let out = command.stdin(Stdio::null()).output();
    let out = out.map_err(WordPressError::file(format!("start {program}")))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).trim().to_owned();
    let from = said.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    let status = out.status.to_string();
    Err(WordPressError::Failed { program, status, said: said[from..].to_owned() })
}

/// No port: a socket in the directory. What a crash would lose is of no value here.
fn database_configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "[mariadbd]
user=root
datadir={dir}/mysql
socket={dir}/run/mysql.sock
pid-file={dir}/run/mysql.pid
tmpdir={dir}/run
log-error={dir}/log/mysql.log
skip-networking
skip-log-bin
innodb_buffer_pool_size=64M
innodb_flush_log_at_trx_commit=2
performance_schema=OFF
max_connections=500
"
    )
}

fn start_database(family: &Family, dir: &Path) -> Result<Member, WordPressError> {
    let socket = dir.join("run/mysql.sock");
    let mut command = Command::new(program("mariadbd")?);
    command.arg(format!("--defaults-file={}", dir.join("my.cnf").display())).stdin(Stdio::null());
    let mut database =
        family.spawn("mariadbd", &mut command).map_err(LaneError::system("start mariadbd"))?;
    let end = Instant::now() + DATABASE_WITHIN;
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        if let Some(ended) = database.ended() {
            return Err(ended.into());
        }
        if Instant::now() > end {
            return Err(WordPressError::Mute(socket));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(database)
}

/// A site whose database runs; it ends with this value.
pub struct Site {
    dir: PathBuf,
    database: Member,
    _lock: File,
}

impl Site {
    /// Starts the database of the site in this directory.
    ///
    /// # Errors
    /// When there is no site, it is unfinished or in use, something is missing, or the database does not start.
    pub fn start(family: &Family, dir: &Path) -> Result<Self, WordPressError> {
        let lock = take(dir)?;
        require()?;
        let dir = fs::canonicalize(dir).map_err(WordPressError::file("find the directory"))?;
        let database = start_database(family, &dir)?;
        Ok(Site { dir, database, _lock: lock })
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the database lives.
    ///
    /// # Errors
    /// When it does not.
    pub fn check(&mut self) -> Result<(), LaneError> {
        self.database.ended().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything, or nothing.
    fn found(is_there: bool, has_program: &dyn Fn(&str) -> bool) -> Found<'_> {
        Found {
            has_program,
            has_fpm: is_there,
            has_application: is_there,
            has_theme: is_there,
            has_mysqli: is_there,
            no_groups: (!is_there).then(|| "control groups with quotas need root".to_owned()),
        }
    }

    #[test]
    fn everything_that_is_missing_is_named_at_once_with_its_package() {
        let lines = lacking(&found(false, &|_| false));
        // Those of docs/haproxy-study.md; HAProxy itself is the business of whoever runs one.
        for package in [
            "nginx-light",
            "php-cli",
            "mariadb-server",
            "php-fpm",
            "wordpress",
            "wordpress-theme-twentytwentythree",
            "php-mysql",
        ] {
            let installs = format!("apt-get install {package}");
            assert!(lines.iter().any(|line| line.ends_with(&installs)), "{package}: {lines:?}");
        }
        assert!(lines.iter().any(|line| line.contains("need root")), "{lines:?}");
        assert_eq!(lacking(&found(true, &|_| true)), Vec::<String>::new());
    }

    #[test]
    fn a_directory_that_is_neither_empty_nor_a_whole_site_is_refused_beforehand() {
        let parent = tempfile::tempdir().unwrap();
        check_place(parent.path()).unwrap();
        check_place(&parent.path().join("absent")).unwrap();
        let refused = |said: &str| {
            let error = check_place(parent.path()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        };
        fs::write(parent.path().join("precious"), "x").unwrap();
        refused("no site is here");
        fs::write(parent.path().join(MARK), UNFINISHED).unwrap();
        refused("the site is unfinished");
        fs::write(parent.path().join(MARK), WHOLE).unwrap();
        check_place(parent.path()).unwrap();
        let held = take(parent.path()).unwrap();
        refused("in use by another command");
        drop(held);
    }
}
