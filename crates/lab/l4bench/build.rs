//! Compiles the programs for the kernel with clang.

#[path = "../../io/l4/build/clang.rs"]
mod clang;

fn main() {
    clang::compile_all(&["bench"], &["../../io/l4/bpf"]);
}
