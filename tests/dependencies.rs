//! What the program is built from. In: `Cargo.toml`, `Cargo.lock`, what cargo knows of the packages, `deny.toml`. Out: every dependency
//! without a reason, every licence and every source that is not allowed. Never: the network. Next: `docs/dependencies.md`.

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

fn table(path: &str) -> toml::Table {
    support::read(path).parse().unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn strings(value: Option<&toml::Value>) -> BTreeSet<String> {
    let items = value.and_then(toml::Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// The direct dependencies, those of single platforms too.
fn direct() -> BTreeSet<String> {
    let manifest = table("Cargo.toml");
    let of = |table: &toml::Table| -> Vec<String> {
        let kinds = ["dependencies", "build-dependencies", "dev-dependencies"];
        let tables = kinds.iter().filter_map(|kind| table.get(*kind)?.as_table());
        tables.flat_map(|table| table.keys().cloned()).collect()
    };
    let platforms = manifest.get("target").and_then(toml::Value::as_table);
    let platforms = platforms.into_iter().flat_map(|t| t.values()).filter_map(toml::Value::as_table);
    of(&manifest).into_iter().chain(platforms.flat_map(of)).collect()
}

#[test]
fn every_dependency_has_a_reason() {
    let page = support::read("docs/dependencies.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let named: BTreeSet<String> = rows.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(named, direct(), "the table of docs/dependencies.md (left) and Cargo.toml");
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert!(cells.len() == 3 && cells.iter().all(|cell| !cell.is_empty()), "a cell is missing: {row}");
    }
}

/// What the lock file at `path` says that the program itself is built from, by name.
fn locked(path: &str) -> BTreeSet<String> {
    let lock = table(path);
    let packages = lock["package"].as_array().expect("a lock file has packages");
    let ours = packages.iter().find(|package| package["name"].as_str() == Some("spmd-check"));
    strings(ours.expect("the program is locked").get("dependencies"))
}

#[test]
fn the_fuzz_targets_lock_what_the_program_is_built_from() {
    // `.ci/run` compiles them with `--locked`, which fails after every other step has passed.
    let manifest = table("Cargo.toml");
    let build = manifest["dependencies"].as_table().expect("dependencies are a table");
    let fuzz = locked("fuzz/Cargo.lock");
    let name = |locked: &String| locked.split(' ').next().unwrap_or_default().to_owned();
    let fuzz: BTreeSet<String> = fuzz.iter().map(name).collect();
    let missing: Vec<&String> = build.keys().filter(|dependency| !fuzz.contains(*dependency)).collect();
    assert!(missing.is_empty(), "run `cargo metadata` in fuzz/: {missing:?} are not in fuzz/Cargo.lock");
}

#[test]
fn sources_are_the_registry() {
    let allowed = strings(table("deny.toml")["sources"].get("allow-registry"));
    let lock = table("Cargo.lock");
    for package in lock["package"].as_array().expect("a lock file has packages") {
        let (name, source) = (package["name"].as_str(), package.get("source").and_then(toml::Value::as_str));
        match source {
            None => assert_eq!(name, Some("spmd-check"), "a package of this machine"),
            Some(source) => {
                let known = source.strip_prefix("registry+").is_some_and(|address| allowed.contains(address));
                assert!(known, "{name:?} comes from {source}");
                assert!(package.get("checksum").is_some(), "{name:?} has no checksum");
            }
        }
    }
}

/// Whether an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0` can be met with these licences. `MIT/Apache-2.0` is the
/// old way to write a choice, `MPL-2.0+` one to write a licence and later ones.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ").replace(" WITH ", "\u{1}");
    let mut words = text.split_whitespace().peekable();
    either(&mut words, allowed) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words, allowed: &BTreeSet<String>) -> bool {
    let mut met = both(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        met |= both(words, allowed);
    }
    met
}

fn both(words: &mut Words, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Words, allowed: &BTreeSet<String>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let met = either(words, allowed);
        return words.next_if_eq(&")").is_some() && met;
    }
    let name = words.next().unwrap_or_default().replace('\u{1}', " WITH ");
    allowed.contains(name.trim_end_matches('+'))
}

#[test]
fn licences_are_allowed() {
    let allowed = strings(table("deny.toml")["licenses"].get("allow"));
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let output = command.args(arguments).current_dir(support::path("")).output().expect("cargo starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("cargo writes text")
    };
    let version = cargo(&["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo has a host");
    // Of other platforms the packages may not be on this machine.
    let metadata = cargo(&["metadata", "--offline", "--locked", "--format-version=1", "--filter-platform", host]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo writes JSON");
    let nodes = metadata["resolve"]["nodes"].as_array().expect("cargo resolves");
    let used: BTreeSet<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    let mut offenders = Vec::new();
    for package in packages.iter().filter(|package| package["id"].as_str().is_some_and(|id| used.contains(id))) {
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence, &allowed) {
            offenders.push(format!("{} {}: {licence}", package["name"], package["version"]));
        }
    }
    assert!(used.len() > 50, "only {} packages were looked at", used.len());
    assert!(offenders.is_empty(), "licences that deny.toml does not allow:\n{}", offenders.join("\n"));
}

#[test]
fn expressions_of_licences_are_read() {
    let allowed: BTreeSet<String> = ["MIT", "Unicode-3.0", "A WITH x"].map(str::to_owned).into();
    for (text, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(MIT OR Apache-2.0) AND GPL-3.0", false),
        ("A WITH x", true),
        ("A WITH y", false),
        ("MIT+", true),
        ("", false),
        ("MIT)", false),
    ] {
        assert_eq!(is_allowed(text, &allowed), met, "{text}");
    }
}
