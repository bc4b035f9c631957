//! The specification: Markdown files whose code blocks state what the checker says of them. In: `tests/spec`, the guides
//! and the explanation pages. Out: every expectation that is not met, and every finding that nobody expects. Never: a skipped block.
//! Next: `support/spec.rs` for the format.

mod support;

use support::spec::{Outcome, run_file};

/// Runs all files below a folder; fails with every mismatch at once.
fn run_folder(folder: &str) {
    let files = support::files_below(folder, ".md");
    assert!(!files.is_empty(), "{folder} holds no specification");
    let outcomes: Vec<Outcome> = support::on_threads(2, || files.iter().map(|file| run_file(file)).collect());
    let blocks: usize = outcomes.iter().map(|o| o.blocks).sum();
    let expectations: usize = outcomes.iter().map(|o| o.expectations).sum();
    let bugs: usize = outcomes.iter().map(|o| o.bugs).sum();
    println!("{folder}: {} files, {blocks} blocks, {expectations} expectations, {bugs} known bugs", files.len());
    let failures: Vec<String> = outcomes.into_iter().flat_map(|o| o.failures).collect();
    assert!(failures.is_empty(), "{} mismatches:\n{}", failures.len(), failures.join("\n"));
    assert!(blocks > 0, "{folder} runs nothing");
}

#[test]
fn the_specification_holds() {
    run_folder("tests/spec");
}

#[test]
fn the_examples_of_the_guides_hold() {
    run_folder("docs");
}

#[test]
fn the_examples_of_the_pages_hold() {
    run_folder("src/diagnostics/pages");
}
