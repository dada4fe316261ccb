//! Lists that a person gave on the command line.

use std::fmt::Display;

/// A complaint for each value of this option that was given before: no list means it to be measured twice.
pub fn twice<T: PartialEq, N: Display>(
    option: &str,
    given: &[T],
    name: impl Fn(&T) -> N,
) -> Vec<String> {
    let again = given.iter().enumerate().filter(|(i, value)| given[..*i].contains(value));
    again.map(|(_, value)| format!("{option}: {} twice", name(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_is_named_wherever_it_stands() {
        let found = |given: &[u32]| twice("--balancers", given, |n| *n);
        assert_eq!(found(&[1, 10]), [""; 0]);
        assert_eq!(found(&[1, 10, 1]), ["--balancers: 1 twice"]);
        assert_eq!(found(&[2, 2, 2]).len(), 2);
    }
}
