//! Comments for the checker, at every place where one can stand.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spmd_check::config::Config;
use spmd_check::syntax;
use spmd_check_fuzz::{examine, files, on_stack, rules};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.split(['\n', '\r']).collect();
    let line = |at: usize| lines.get(at % lines.len()).copied().unwrap_or("");
    on_stack(|| {
        for line in &lines {
            let _ = syntax::parse_type_expr(line);
            let _ = syntax::parse_cond(line);
        }
        let source = format!(
            "import torch\nimport torch.distributed as dist\n\
             # spmd: {0}\n\
             class Layer(torch.nn.Module):  # spmd: {1}\n    # spmd: {2}\n    def __init__(self, size, group):\n        \
             self.weight = torch.nn.Parameter(torch.empty(size, size))  # spmd: {0}\n        self.group = group\n\n    \
             # spmd: {1}\n    def forward(self, x, flag=False):  # spmd: {2}\n        # spmd: {3}\n        \
             y = torch.nn.functional.linear(x, self.weight)  # spmd: {0}\n        \
             if flag:  # spmd: {1}\n            dist.all_reduce(y, group=self.group)  # spmd: {2}\n        \
             return y  # spmd: {3}\n\n# spmd: {0}\n@torch.no_grad()\n# spmd: {1}\ndef train(x, tp, *rest, **more):\n    \
             z = Layer(4, tp)(x)  # spmd: {1}\n    # spmd: {2}\n    return z, x  # spmd: {3}\n# spmd: {0}",
            line(0),
            line(1),
            line(2),
            line(3)
        );
        examine(&Config::default(), rules(), &files([("one.py", source.as_bytes())]));
    });
});
