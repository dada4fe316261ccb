//! The application tier: nginx and php-fpm of each instance in a control group with a quota.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, Interrupt, LaneError, Member, check_answer};

use super::WordPressError;
use super::requests::warm_up;
use super::site::{Site, program};
use crate::addresses::address;
use crate::cgroup::{CgroupError, Cgroups, Group, Limits, Quota};
use crate::{RealError, php};

/// The kernel's and Kubernetes' usual one.
const PERIOD: Duration = Duration::from_millis(100);
const START_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// php-fpm's processes of an instance: Debian's default.
const PROCESSES: usize = 5;

struct Instance {
    name: String,
    address: SocketAddr,
    processes: Vec<Member>,
    group: Group,
}

/// Instances of one site; they end with this value.
pub struct Instances {
    instances: Vec<Instance>,
}

impl Instances {
    /// One of each quota, parts of a core. Returns when each has served every kind of request, so that the first
    /// measurement finds caches as all later ones do; until then none is held back, for under a small quota that takes
    /// minutes. `number` tells their addresses from those of others that run at the same time.
    ///
    /// # Errors
    /// When a group, a file or a process cannot be had, when a request is not answered as it should, or when interrupted.
    pub fn start(
        family: &Family,
        cgroups: &Cgroups,
        site: &Site,
        quotas: &[f64],
        number: u8,
        interrupt: &Interrupt,
    ) -> Result<Self, WordPressError> {
        let mut instances = Vec::new();
        for (i, &cores) in (1..).zip(quotas) {
            let name = format!("s{i}");
            let limits = Limits { quota: Some(Quota { cores, period: PERIOD }), cpus: None };
            let group = cgroups.group(&format!("wordpress-{number}-{name}"), &limits);
            let group = group.map_err(RealError::from)?;
            group.lift_quota().map_err(RealError::from)?;
            let address = address(number, i)?;
            let dir = family.dir().join(format!("wordpress-{number}-{name}"));
            let processes =
                start(family, &group, site, address, &dir, &format!("{number}-{name}"))?;
            instances.push(Instance { name, address, processes, group });
        }
        let mut all = Instances { instances };
        all.wait_until_ready()?;
        warm_up(&all, interrupt)?;
        all.restore_quotas()?;
        Ok(all)
    }

    /// Names and addresses.
    pub fn addresses(&self) -> Vec<(String, SocketAddr)> {
        self.instances.iter().map(|one| (one.name.clone(), one.address)).collect()
    }

    /// CPU time of each instance so far, by the account of its control group.
    ///
    /// # Errors
    /// When the kernel keeps none.
    pub fn cpu_used(&self) -> Result<Vec<Duration>, WordPressError> {
        let used = |one: &Instance| {
            one.group.cpu_used().ok_or(RealError::from(CgroupError::NoAccount).into())
        };
        self.instances.iter().map(used).collect()
    }

    /// The directory of each one's control group, where its quota is.
    pub fn groups(&self) -> Vec<PathBuf> {
        self.instances.iter().map(|one| one.group.dir().to_owned()).collect()
    }

    /// Lets all use as much CPU as there is: php-fpm works on what is queued though nobody waits for it any more, which
    /// under a small quota takes many minutes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn lift_quotas(&self) -> Result<(), WordPressError> {
        let lift = |one: &Instance| one.group.lift_quota().map_err(RealError::from);
        Ok(self.instances.iter().try_for_each(lift)?)
    }

    /// Gives each its own quota.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn restore_quotas(&self) -> Result<(), WordPressError> {
        let restore = |one: &Instance| one.group.restore_quota().map_err(RealError::from);
        Ok(self.instances.iter().try_for_each(restore)?)
    }

    /// Whether every process still lives.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&mut self) -> Result<(), LaneError> {
        let mut processes = self.instances.iter_mut().flat_map(|one| &mut one.processes);
        processes.find_map(Member::ended).map_or(Ok(()), Err)
    }

    fn wait_until_ready(&mut self) -> Result<(), WordPressError> {
        let end = Instant::now() + START_WITHIN;
        for i in 0..self.instances.len() {
            loop {
                self.check()?;
                let Instance { name, address, .. } = &self.instances[i];
                match check_answer(*address, "lab.example", "/", START_WITHIN) {
                    Ok(()) => break,
                    Err(source) if Instant::now() > end => {
                        let (name, address) = (name.clone(), *address);
                        return Err(RealError::Mute { name, address, source }.into());
                    }
                    Err(_) => std::thread::sleep(LOOK_EVERY),
                }
            }
        }
        Ok(())
    }
}

fn start(
    family: &Family,
    group: &Group,
    site: &Site,
    address: SocketAddr,
    dir: &Path,
    name: &str,
) -> Result<Vec<Member>, WordPressError> {
    fs::create_dir_all(dir).map_err(WordPressError::file(format!("make {}", dir.display())))?;
    let (nginx, fpm) = (dir.join("nginx.conf"), dir.join("php-fpm.conf"));
    let write = |path: &Path, text: String| {
        fs::write(path, text).map_err(WordPressError::file(format!("write {}", path.display())))
    };
    write(&nginx, nginx_configuration(&site.dir().join("site"), address, dir))?;
    write(&fpm, fpm_configuration(dir))?;
    let path = php::find_fpm()
        .ok_or_else(|| WordPressError::Missing(vec!["php-fpm is not installed".into()]))?;
    let mut fpm_command = group.command(&path);
    fpm_command.args(["-F", "-R", "-y"]).arg(&fpm);
    let mut nginx_command = group.command(&program("nginx")?);
    nginx_command.args(["-e", "stderr", "-p"]).arg(dir).arg("-c").arg(&nginx);
    let mut members = Vec::new();
    for (what, command) in [("php", &mut fpm_command), ("nginx", &mut nginx_command)] {
        let name = format!("wordpress-{name}-{what}");
        let member = family.spawn(&name, command.stdin(Stdio::null()));
        members.push(member.map_err(LaneError::system(format!("start {name}")))?);
    }
    Ok(members)
}

/// A path `/~NAME/page/` is the page's under another name, for balancers that hash paths: whoever is behind nginx
/// sees `/page/`.
const NAMES: &str = r"    map $request_uri $plain_uri {
        ~^/~[^/]*(?<rest>/.*)$ $rest;
        default $request_uri;
    }
";

fn nginx_configuration(site: &Path, address: SocketAddr, dir: &Path) -> String {
    let parameters = php::fastcgi_parameters(&[
        ("SCRIPT_FILENAME", "$document_root$fastcgi_script_name"),
        ("SCRIPT_NAME", "$fastcgi_script_name"),
        ("DOCUMENT_ROOT", "$document_root"),
        ("DOCUMENT_URI", "$document_uri"),
        ("REQUEST_URI", "$plain_uri"),
        ("REQUEST_METHOD", "$request_method"),
        ("QUERY_STRING", "$query_string"),
        ("CONTENT_TYPE", "$content_type"),
        ("CONTENT_LENGTH", "$content_length"),
        ("SERVER_PROTOCOL", "$server_protocol"),
        ("REMOTE_ADDR", "$remote_addr"),
        ("SERVER_NAME", "lab.example"),
        ("SERVER_PORT", "80"),
    ]);
    let (site, socket) = (site.display(), dir.display());
    let server = format!(
        "        root {site};
        index index.php;
        location ~ ^/~[^/]*/ {{ rewrite ^/~[^/]*(/.*)$ $1 last; }}
        location / {{ try_files $uri $uri/ /index.php?$args; }}
        location ~ \\.php$ {{
            fastcgi_pass unix:{socket}/php.sock;
{parameters}        }}
"
    );
    php::nginx_of_server(address, dir, NAMES, &server)
}

/// Code does not change while it runs, so nobody looks whether it has.
fn fpm_configuration(dir: &Path) -> String {
    php::fpm_of_server(PROCESSES, dir, "php_admin_value[opcache.validate_timestamps] = 0\n")
}
