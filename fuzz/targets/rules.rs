//! The text of a file of rules, alone or beside the built-in ones; a program is checked with what is accepted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spmd_check::config::Config;
use spmd_check::rules::{FILES, load};
use spmd_check_fuzz::{examine, files, on_stack, programs::programs};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    on_stack(|| {
        let program = &programs()[text.len() % programs().len()].join("\n");
        let files = files([("one.py", program.as_bytes())]);
        let beside = text.len() % 8 == 0;
        let built_in = FILES.iter().copied().filter(|_| beside);
        let all: Vec<(&str, &str)> = built_in.chain([("own.toml", text)]).collect();
        let (book, problems) = load(&all);
        for problem in &problems {
            let text = all.get(problem.file).map_or("", |(_, text)| text);
            assert!(text.get(problem.span.start as usize..problem.span.end as usize).is_some(), "a place outside");
        }
        // Also of a file with mistakes there is a book of what was understood.
        examine(&Config::default(), &book, &files);
    });
});
