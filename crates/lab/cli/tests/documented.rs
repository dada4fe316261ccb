//! Commands that the documentation names: programs' options, experiments, examples, tests and benches are there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LAB: &str = env!("CARGO_BIN_EXE_plimsoll-lab");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// All pages, with their names.
fn pages() -> Vec<(String, String)> {
    let of = |dir: &str| {
        fs::read_dir(root().join(dir)).expect("a directory").map(|e| e.expect("it").path())
    };
    let all = [".", "docs", "benches/results"].into_iter().flat_map(of);
    let mut pages: Vec<PathBuf> =
        all.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.sort();
    let page = |path: PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("text"))
    };
    // What was true of earlier versions is none of this.
    pages.into_iter().map(page).filter(|(name, _)| name != "CHANGELOG.md").collect()
}

/// The pieces of code of a page: lines in fences, and what stands between backticks.
fn code(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.split("\\\n").map(str::trim_start).collect();
    let text = lines.join(" ");
    let (mut found, mut is_fenced) = (Vec::new(), false);
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced {
            found.push(line.trim().to_owned());
        } else {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    found.extend(prose.split('`').skip(1).step_by(2).map(|piece| piece.replace('\n', " ")));
    found
}

/// Commands of one piece of code, as words; comments are cut off.
fn commands(piece: &str) -> Vec<Vec<String>> {
    // What a command does stands behind it, after a `#` or in a column of its own.
    let piece = piece.split(" #").next().unwrap_or_default();
    let piece = piece.split("   ").next().unwrap_or_default();
    let parts =
        piece.split(" && ").flat_map(|part| part.split("; ")).flat_map(|part| part.split(" | "));
    parts.map(|part| part.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Every command of every page, with the page's name.
fn documented() -> Vec<(String, Vec<String>)> {
    let of = |(name, text): (String, String)| {
        let all = code(&text).into_iter().flat_map(|piece| commands(&piece)).collect::<Vec<_>>();
        all.into_iter().map(move |words| (name.clone(), words))
    };
    pages().into_iter().flat_map(of).collect()
}

/// The words after the program, where that is what the command runs.
fn words_of<'a>(program: &str, words: &'a [String]) -> Option<&'a [String]> {
    let at = words.iter().position(|word| !word.contains('=') && word != "sudo")?;
    let is_it = words[at] == program || words[at].ends_with(&format!("/{program}"));
    is_it.then_some(&words[at + 1..])
}

fn ask(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().expect("it runs");
    assert!(output.status.success(), "{program} {words:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn options_and_experiments_of_the_lab_are_there() {
    let is_name =
        |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || "0123456789-.".contains(c));
    let listed: Vec<String> = {
        let all: Vec<serde_json::Value> =
            serde_json::from_str(&ask(LAB, &["list", "-o", "json"])).expect("JSON");
        all.iter().filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect()
    };
    let mut help: BTreeMap<String, String> = BTreeMap::new();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (page, words) in documented() {
        let Some(after) = words_of("plimsoll-lab", &words) else { continue };
        let Some(command) = after.first().filter(|word| is_name(word) && !word.starts_with('-'))
        else {
            continue;
        };
        // The site's command has commands of its own.
        let asked: Vec<&str> = match (command.as_str(), after.get(1)) {
            ("wordpress", Some(next)) if is_name(next) => vec!["wordpress", next],
            (command, _) => vec![command],
        };
        let known = help.entry(asked.join(" ")).or_insert_with(|| {
            let output = Command::new(LAB).args(&asked).arg("--help").output().expect("it runs");
            String::from_utf8_lossy(&output.stdout).into_owned()
        });
        seen += 1;
        let text = words.join(" ");
        if known.is_empty() {
            wrong.push(format!("{page}: {text}: no such command"));
            continue;
        }
        for option in after.iter().map(|word| word.trim_start_matches(['[', '('])) {
            let name = option.split('=').next().unwrap_or_default().trim_end_matches([']', ')']);
            let is_known = known.split_whitespace().any(|word| word.trim_end_matches(',') == name);
            if name.starts_with("--") && name.len() > 2 && !is_known {
                wrong.push(format!("{page}: {text}: no option {name}"));
            }
        }
        // Where nothing stands for something else, values are read as well: `--help` at the end keeps it from running.
        let stands_for = |c: char| c.is_ascii_uppercase() || "[]()|…".contains(c);
        if !after.iter().any(|word| word.contains(stands_for) || word == "...") {
            let output = Command::new(LAB).args(after).arg("--help").output().expect("it runs");
            if !output.status.success() {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                wrong.push(format!("{page}: {text}: {}", why.lines().next().unwrap_or_default()));
            }
        }
        if command == "run" {
            let names =
                after[1..].iter().take_while(|word| is_name(word) && !word.starts_with('-'));
            for name in names.filter(|name| !listed.contains(name)) {
                wrong.push(format!("{page}: {text}: no experiment {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "{seen} commands were found");
}

/// Directories of packages by name.
fn packages() -> BTreeMap<String, PathBuf> {
    fn walk(dir: &Path, found: &mut BTreeMap<String, PathBuf>) {
        if let Ok(text) = fs::read_to_string(dir.join("Cargo.toml"))
            && let Some(name) = text.lines().find_map(|line| line.strip_prefix("name = "))
        {
            found.insert(name.trim_matches('"').to_owned(), dir.to_owned());
            return;
        }
        for entry in fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("it").path())
        {
            if entry.is_dir() {
                walk(&entry, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&root().join("crates"), &mut found);
    found
}

/// Whether the package has such an example, test or bench.
fn has(package: &Path, kind: &str, name: &str) -> bool {
    let dir = package.join(match kind {
        "--example" => "examples",
        "--test" => "tests",
        _ => "benches",
    });
    let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a manifest");
    dir.join(format!("{name}.rs")).is_file()
        || dir.join(name).join("main.rs").is_file()
        // One that stands elsewhere.
        || manifest.contains(&format!("name = \"{name}\"\npath"))
}

#[test]
fn environment_variables_are_read_somewhere() {
    fn sources(dir: &Path, found: &mut String) {
        for path in fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("it").path()) {
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push_str(&fs::read_to_string(path).expect("text"));
            }
        }
    }
    let mut all = String::new();
    sources(&root().join("crates"), &mut all);
    for (page, words) in documented() {
        for name in words.iter().filter_map(|word| word.split_once('=')).map(|(name, _)| name) {
            let is_ours = name.starts_with("PLIMSOLL_");
            assert!(
                !is_ours || all.contains(&format!("\"{name}\"")),
                "{page}: nothing reads {name}"
            );
        }
    }
}

#[test]
fn examples_tests_and_benches_are_there() {
    let packages = packages();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (page, words) in documented() {
        let text = words.join(" ");
        let after = |option: &str| {
            let at = words.iter().position(|word| word == option)?;
            words.get(at + 1).map(String::as_str)
        };
        let is_cargo = words.iter().any(|word| word == "cargo");
        // Tables name an example by its package: `plimsoll-sim --example arena`.
        let first = words.first().map(String::as_str).filter(|word| packages.contains_key(*word));
        let package = if is_cargo { after("-p") } else { first };
        let Some(package) = package.filter(|name| *name != "CRATE") else { continue };
        let Some(dir) = packages.get(package) else {
            wrong.push(format!("{page}: {text}: no package {package}"));
            continue;
        };
        for kind in ["--example", "--test", "--bench"] {
            let Some(name) = after(kind) else { continue };
            seen += 1;
            if !has(dir, kind, name) {
                wrong.push(format!("{page}: {text}: {package} has no {kind} {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 40, "{seen} were found");
}

/// The words of a variable of the Makefile.
fn variable(makefile: &str, name: &str) -> Vec<String> {
    let start = format!("{name} = ");
    let at = makefile.find(&format!("\n{start}")).expect("the variable") + 1 + start.len();
    let text = makefile[at..].replace("\\\n", " ");
    text.lines().next().expect("a line").split_whitespace().map(str::to_owned).collect()
}

#[test]
fn make_quick_has_all_tests_of_what_decides() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("a Makefile");
    let (crates, tests) = (variable(&makefile, "QUICK"), variable(&makefile, "QUICK_TESTS"));
    let of_quick: Vec<PathBuf> = packages()
        .into_iter()
        .filter(|(name, _)| crates.iter().any(|short| *name == format!("plimsoll-{short}")))
        .map(|(_, dir)| dir)
        .collect();
    assert_eq!(of_quick.len(), crates.len());
    for test in &tests {
        assert!(of_quick.iter().any(|dir| has(dir, "--test", test)), "no test is called {test}");
    }
    for dir in of_quick.iter().filter(|dir| dir.ancestors().any(|of| of.ends_with("crates/logic")))
    {
        let Ok(all) = fs::read_dir(dir.join("tests")) else { continue };
        for path in all.map(|entry| entry.expect("it").path()) {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if has(dir, "--test", &name) {
                assert!(tests.contains(&name), "{}: not among QUICK_TESTS", path.display());
            }
        }
    }
}
