//! Questions to `plan`, as JSON lines and as the texts of the command line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spmd_check::plan::{Defaults, Device, Dtype, Machine, answer};
use spmd_check_fuzz::start;

fuzz_target!(|bytes: &[u8]| {
    start();
    for device in [Device::Cpu, Device::Cuda] {
        let Ok(dtype) = Dtype::parse("bf16") else { return };
        let defaults = Defaults { dtype, machine: Machine::new(device, None) };
        for (at, line) in bytes.split(|byte| *byte == b'\n').take(4).enumerate() {
            if let Some(answer) = answer(line, at + 1, defaults) {
                let value: serde_json::Value = serde_json::from_str(&answer.line).expect("an answer is JSON");
                assert!(value.get("steps").is_some() != value.get("error").is_some(), "steps or an error: {}", answer.line);
            }
        }
    }
});
