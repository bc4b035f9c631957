//! Bytes of one file, or of two that import each other, to a report in every format; for some also the repairs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spmd_check::config::Config;
use spmd_check_fuzz::{examine, files, on_stack, rules};

/// Between two files.
const MARK: &[u8] = b"\n#----\n";

fuzz_target!(|bytes: &[u8]| {
    on_stack(|| {
        let at = bytes.windows(MARK.len()).position(|window| window == MARK);
        let files = match at {
            None => files([("one.py", bytes)]),
            Some(at) => {
                let first = [b"from two import *\n", &bytes[..at]].concat();
                let second = [b"from one import *\n", &bytes[at + MARK.len()..]].concat();
                files([("one.py", first.as_slice()), ("two.py", second.as_slice())])
            }
        };
        examine(&Config::default(), rules(), &files);
    });
});
