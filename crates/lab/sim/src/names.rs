//! Names of faults, rules and mutants on the command line.

use std::fmt::Display;

/// `CrashStoreLost` as `crash-store-lost`.
pub fn kebab(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// Finds the value with this name.
///
/// # Errors
/// A line with all the names.
pub fn from_name<T: Copy + Display>(name: &str, all: &[T]) -> Result<T, String> {
    all.iter().copied().find(|one| one.to_string() == name).ok_or_else(|| {
        let names: Vec<String> = all.iter().map(T::to_string).collect();
        format!("{name}: expected one of {}", names.join(", "))
    })
}
