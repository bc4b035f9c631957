//! The text of a configuration; a program is checked with it when it is accepted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spmd_check::config;
use spmd_check_fuzz::{examine, files, on_stack, programs::programs, rendered, rules, with_checks};
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    on_stack(|| {
        // Which program is as good as chance, and the same for the same text.
        let program = &programs()[text.len() % programs().len()].join("\n");
        let files = files([("package/one.py", program.as_bytes())]);
        for name in ["spmd-check.toml", "pyproject.toml"] {
            let root = Path::new("/project");
            match with_checks(|checks| config::parse(&root.join(name), text, root, checks)) {
                Ok(config) => drop(examine(&config, rules(), &files)),
                Err(found) => {
                    assert!(!found.problems.is_empty(), "refused without a reason");
                    rendered(&found.problems, &found.files);
                }
            }
        }
    });
});
