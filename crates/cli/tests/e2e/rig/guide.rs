//! The examples of a page of docs/, which tests run.

use plimsoll_testbed::Testbed;

/// Where most pages have theirs.
pub const START_TO_FINISH: &str = "## From start to finish";

/// The first block of this language behind these words of a page, without its indentation; every line ends, as HAProxy asks.
pub fn block(page: &str, after: &str, language: &str) -> String {
    let (_, rest) = page.split_once(after).expect("these words");
    let (_, rest) = rest.split_once(&format!("```{language}\n")).expect("a block");
    let (text, _) = rest.split_once("```").expect("its end");
    let all = || text.lines().filter(|line| !line.trim().is_empty());
    let indented = all().map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    all().fold(String::new(), |block, line| block + &line[indented..] + "\n")
}

/// An example with the addresses of the emulated servers in the place of its own, 10.0.0.11:8080 and 10.0.0.12:8080.
pub fn with_servers(mut text: String, bed: &Testbed) -> String {
    for (example, (_, real)) in ["10.0.0.11:8080", "10.0.0.12:8080"].iter().zip(bed.addresses()) {
        assert!(text.contains(example), "{text}");
        text = text.replace(example, &real.to_string());
    }
    text
}
