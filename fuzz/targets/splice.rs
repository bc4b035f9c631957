//! Programs with parts of other programs in them: the report is the same in a second run, and repairs leave something that can be
//! checked again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spmd_check::config::Config;
use spmd_check::fix::{Policy, repair};
use spmd_check_fuzz::{Bytes, examine, examine_again, files, on_stack, programs::spliced, rules};

fuzz_target!(|bytes: &[u8]| {
    on_stack(|| {
        let mut choices = Bytes::new(bytes);
        let more = choices.byte();
        let second = (more & 3 == 0).then(|| {
            let count = choices.below(64);
            spliced(&mut Bytes::new(choices.take(count)))
        });
        let mut first = spliced(&mut choices);
        let files = match &second {
            Some(second) => {
                first.insert_str(0, "from two import *\nimport two\n");
                let second = format!("import one\nfrom one import *\n{second}");
                files([("one.py", first.as_bytes()), ("two.py", second.as_bytes())])
            }
            None => files([("one.py", first.as_bytes())]),
        };
        if std::env::var_os("SHOW").is_some() {
            for (_, file) in files.iter() {
                println!("# {}\n{}", file.path, file.text);
            }
        }
        let config = Config::default();
        let report = examine(&config, rules(), &files);
        if more & 12 == 0 {
            examine_again(&config, rules(), &files, &report);
        }
        if more & 48 == 0 && report.diagnostics.len() < 12 {
            let repaired = repair(&config, rules(), &files, Policy::Safe);
            examine(&config, rules(), &repaired.files);
        }
    });
});
