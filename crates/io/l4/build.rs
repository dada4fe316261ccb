//! Compiles the programs for the kernel with clang.

#[path = "build/clang.rs"]
mod clang;

const PROGRAMS: [&str; 4] = ["agent", "balancer", "guard", "tests/slow_reader"];

fn main() {
    clang::compile_all(&PROGRAMS, &[]);
}
