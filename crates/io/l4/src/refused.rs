//! Why the kernel does not take a program, or an interface does not take it: for people.

use std::error::Error;
use std::io;

use aya::EbpfError;
use aya::programs::ProgramError;
use rustix::io::Errno;

use crate::config::AttachMode;
use crate::doctor::NATIVE_MTU;
use crate::error::L4Error;

pub(crate) fn refused<E: Error + 'static>(error: &E) -> L4Error {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    // Not EACCES: that is what the verifier says of a program that it does not believe.
    if errno(error) == Some(Errno::PERM) {
        return L4Error::Privileges(format!("what it was refused for: {text}"));
    }
    L4Error::Load(text)
}

/// The kernel's error number, where it gave one.
pub(crate) fn errno(error: &(dyn Error + 'static)) -> Option<Errno> {
    let number = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    number.map(Errno::from_raw_os_error).or_else(|| error.source().and_then(errno))
}

/// How often a program is given to the kernel, at the most.
const TRIES: u32 = 10;

/// Tries again what was disturbed.
pub(crate) fn undisturbed<E>(
    mut load: impl FnMut() -> Result<(), E>,
    was_disturbed: impl Fn(&E) -> bool,
) -> Result<(), E> {
    let mut tries = 1;
    loop {
        match load() {
            Err(error) if was_disturbed(&error) && tries < TRIES => tries += 1,
            done => return done,
        }
    }
}

/// The verifier, which may take a second on a busy machine, gives up where a signal comes, such as SIGHUP.
pub(crate) fn was_disturbed(error: &ProgramError) -> bool {
    let again = Some(Errno::AGAIN.raw_os_error());
    matches!(error, ProgramError::LoadError { io_error, .. } if io_error.raw_os_error() == again)
}

/// A program that an old kernel does not take is refused for that, and not by its verifier's words.
pub(crate) fn explained(error: L4Error, missing: impl Fn() -> Vec<String>) -> L4Error {
    let missing = match error {
        L4Error::Load(_) => missing(),
        _ => Vec::new(),
    };
    if missing.is_empty() {
        return error;
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    L4Error::TooOld { release, missing: missing.join(", ") }
}

/// Whether another program is on the interface.
pub(crate) fn is_held(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::BUSY | Errno::EXIST))
}

pub(crate) fn why_not_attached(
    errno: Option<Errno>,
    text: String,
    mode: AttachMode,
    mtu: u32,
) -> String {
    if is_held(errno) {
        return format!(
            "another XDP program is attached (`ip link show` names it), perhaps by a plimsoll with another \
             pin_dir; expected none: {text}"
        );
    }
    // The last is what veth says of its MTU.
    if matches!(errno, Some(Errno::OPNOTSUPP | Errno::INVAL | Errno::RANGE)) {
        let hint = match mode {
            AttachMode::Native if mtu > NATIVE_MTU => format!(
                "MTU {mtu}; expected at most {NATIVE_MTU} for native XDP, where a packet is in one page, or \
                 mode: generic"
            ),
            AttachMode::Native => "the driver takes no native XDP: try mode: generic".to_owned(),
            AttachMode::Generic => "the interface takes no XDP".to_owned(),
        };
        return format!("{hint}: {text}");
    }
    text
}

impl From<EbpfError> for L4Error {
    fn from(error: EbpfError) -> Self {
        refused(&error)
    }
}

#[cfg(test)]
mod tests {
    use aya::sys::SyscallError;

    use super::*;

    #[test]
    fn a_large_mtu_is_named_where_native_xdp_is_refused() {
        let told = |code, mode, mtu| why_not_attached(Some(code), "why".to_owned(), mode, mtu);
        for code in [Errno::INVAL, Errno::RANGE, Errno::OPNOTSUPP] {
            let large = told(code, AttachMode::Native, 9000);
            assert!(large.starts_with("MTU 9000; expected at most 3498"), "{large}");
            let usual = told(code, AttachMode::Native, 1500);
            assert!(usual.contains("takes no native XDP"), "{usual}");
            assert!(told(code, AttachMode::Generic, 9000).contains("takes no XDP"));
        }
        assert!(told(Errno::BUSY, AttachMode::Native, 9000).contains("another XDP program"));
    }

    #[test]
    fn the_kernels_number_is_found_behind_the_librarys_words() {
        let kernels = || io::Error::from_raw_os_error(Errno::PERM.raw_os_error());
        let call = SyscallError { call: "bpf_prog_load", io_error: kernels() };
        let error = ProgramError::SyscallError(call);
        assert_eq!(errno(&error), Some(Errno::PERM));
        assert!(matches!(refused(&error), L4Error::Privileges(_)));
        assert_eq!(errno(&io::Error::other("Operation not permitted")), None);
    }

    #[test]
    fn a_program_is_loaded_though_signals_come() {
        let loaded_at = |at: u32, disturbed: bool| {
            let mut tries = 0;
            let load = || {
                tries += 1;
                if tries == at { Ok(()) } else { Err(disturbed) }
            };
            (undisturbed(load, |disturbed| *disturbed), tries)
        };
        assert_eq!(loaded_at(3, true), (Ok(()), 3));
        assert_eq!(loaded_at(TRIES, true), (Ok(()), TRIES));
        assert_eq!(loaded_at(TRIES + 1, true), (Err(true), TRIES), "not for ever");
        assert_eq!(loaded_at(2, false), (Err(false), 1), "what is wrong is wrong");
    }

    #[test]
    fn an_old_kernel_is_refused_by_what_it_lacks() {
        let lacks = || vec!["BPF_FUNC_xdp_load_bytes (Linux 5.18)".to_owned()];
        let load = || L4Error::Load("invalid func unknown#189".to_owned());
        let told = explained(load(), lacks).to_string();
        assert!(
            told.ends_with("is too old: expected BPF_FUNC_xdp_load_bytes (Linux 5.18)"),
            "{told}"
        );
        assert!(matches!(explained(load(), Vec::new), L4Error::Load(_)), "for another reason");
        assert!(matches!(
            explained(L4Error::Privileges(String::new()), lacks),
            L4Error::Privileges(_)
        ));
    }
}
