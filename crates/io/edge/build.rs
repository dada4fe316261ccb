//! Compiles the programs for the kernel with clang.

#[path = "../l4/build/clang.rs"]
mod clang;

fn main() {
    clang::compile_all(&["bench", "carry", "forwarder", "node", "service"], &["../l4/bpf"]);
}
