//! Words of repairs. In: a repair. Out: the code to write, or in words what it has to do where no package of the project does it.
//! Never: a choice between repairs. Next: `mod.rs`; `infer/repair.rs` makes the repairs.

use super::Words;
use crate::infer::finding::{Conversion, Repair};
use crate::types::Spmd;

/// The package whose functions stand in the text of a repair where a file imports none that fits.
const PACKAGE: &str = "spmd_types";

impl Words<'_> {
    /// The code of a repair; where it would need a package that the project does not import, what the code has to do.
    pub fn repair(&self, repair: &Repair) -> String {
        match &repair.foreign {
            Some(conversion) if !self.imports_package() => self.conversion(conversion),
            Some(_) | None => repair.text.clone(),
        }
    }

    fn imports_package(&self) -> bool {
        let imports = |line: &str| {
            let line = line.trim_start();
            line.contains(PACKAGE) && (line.starts_with("import ") || line.starts_with("from "))
        };
        self.files.saying(PACKAGE).any(|id| self.files[id].whole().lines().any(imports))
    }

    fn conversion(&self, conversion: &Conversion) -> String {
        let Conversion { place, axis, from, to } = conversion;
        let value = self.named(*place);
        match (from, to) {
            (Spmd::Partial, Spmd::Replicate) => format!(
                "sum {value} over `{axis}`, and its gradient as well: \
                 `torch.distributed.nn.functional.all_reduce` with the group of `{axis}`"
            ),
            (Spmd::Partial, _) => format!(
                "sum {value} over `{axis}` in an autograd function whose backward returns the gradient as it is"
            ),
            (Spmd::Replicate | Spmd::Invariant | Spmd::Varying, _) => format!(
                "pass {value} through an autograd function that returns it, and whose backward sums the gradient over `{axis}`"
            ),
        }
    }
}
