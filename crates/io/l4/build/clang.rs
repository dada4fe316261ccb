//! Finds clang and compiles programs for the kernel with it: what the build scripts of the crates with such programs
//! share. `CLANG` names another compiler.

use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const CANDIDATES: [&str; 7] =
    ["clang-19", "clang-20", "clang-21", "clang-18", "clang-17", "clang-16", "clang"];

/// Compiles `bpf/NAME.bpf.c` for each name into `OUT_DIR`; headers are also looked for in `include`.
pub fn compile_all(programs: &[&str], include: &[&str]) {
    println!("cargo::rerun-if-changed=bpf");
    for dir in include {
        println!("cargo::rerun-if-changed={dir}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = find_clang();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    for program in programs {
        compile(&clang, program, include, &out);
    }
}

fn find_clang() -> String {
    let named = std::env::var("CLANG").ok();
    let candidates = named.as_deref().map_or(CANDIDATES.to_vec(), |name| vec![name]);
    let works = |name: &&str| {
        let asked = Command::new(name).arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    };
    match candidates.iter().copied().find(works) {
        Some(name) => name.to_owned(),
        None => fail(&format!(
            "the programs for the kernel need clang: expected one of {} on the PATH, or its path in \
             CLANG. scripts/install-deps installs it (Debian: apt-get install clang-19 libbpf-dev)",
            candidates.join(", ")
        )),
    }
}

fn compile(clang: &str, program: &str, include: &[&str], out: &Path) {
    let object = out.join(format!("{program}.bpf.o").replace('/', "-"));
    // Debian keeps asm/types.h apart for each architecture.
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    let output = Command::new(clang)
        .args(["-O2", "-g", "-mcpu=v3", "-target", "bpf", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-I/usr/include/{machine}-linux-gnu"))
        .args(include.iter().map(|dir| format!("-I{dir}")))
        .arg("-c")
        .arg(format!("bpf/{program}.bpf.c"))
        .arg("-o")
        .arg(&object)
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let hint = if errors.contains("bpf/bpf_helpers.h") {
                "\nlibbpf's headers are missing: scripts/install-deps installs them (Debian: apt-get \
                 install libbpf-dev)"
            } else {
                ""
            };
            fail(&format!("{clang} does not compile bpf/{program}.bpf.c:\n{errors}{hint}"));
        }
        Err(error) => fail(&format!("cannot run {clang}: {error}")),
    }
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    exit(1)
}
