//! What the texts of a program say of a parameter that no reducer takes: it may be frozen, or its gradient summed in a way that is not read. In: the
//! files that speak of its class. Out: yes or no. Never: proof; a word is enough to be silent. Source: DESIGN.md section 7. Next: `whole.rs`,
//! which asks.

use super::practice::near;
use crate::source::Span;

/// Ways to take gradients, or to sum them, that are not followed.
const WAYS: &[&str] =
    &["autograd.grad(", "func.grad", "multi_grad_hook", "parametriz", "dist.reduce(", "distributed.reduce("];

/// Functions and methods that are given a gradient and only look at it, keep it, or change it on this rank.
const LOOKS: &[&str] = &[
    "append",
    "extend",
    "norm",
    "isfinite",
    "isnan",
    "isinf",
    "any",
    "all",
    "print",
    "len",
    "float",
    "item",
    "zeros_like",
    "clone",
    "mul_",
    "div_",
    "add_",
    "copy_",
    "all_reduce",
    "reduce_scatter_tensor",
    "reduce_scatter",
    "all_gather",
    "allreduce",
    "getattr",
    "hasattr",
    "isinstance",
    "if",
    "not",
    "and",
    "or",
    "in",
    "for",
    "cat",
    "stack",
    "is_tensor",
    "vector_norm",
    "pow",
    "square",
    "_foreach_norm",
    "_foreach_mul_",
    "_flatten_dense_tensors",
    "all_reduce_coalesced",
];

/// Whether a text may sum gradients in another way than by a loop over parameters that is read.
pub fn sums_otherwise(text: &str) -> bool {
    near::has_any(text, WAYS)
        || text.contains(".grad")
            && text.lines().any(|line| hands_on(line) || lays_out(line) && text.contains("all_reduce("))
}

/// `comm.sum_(p.grad)`: a gradient goes to something of which nothing is known.
fn hands_on(line: &str) -> bool {
    let code = line.split('#').next().unwrap_or(line);
    code.match_indices(".grad").any(|(at, _)| {
        let rest = &code[at + ".grad".len()..];
        let ends = rest.starts_with([')', ',']);
        let Some(open) = code[..at].rfind('(').filter(|_| ends) else { return false };
        let callee =
            code[..open].rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').next().unwrap_or_default();
        let last = callee.rsplit('.').next().unwrap_or_default();
        !last.is_empty() && !LOOKS.contains(&last) && !callee.starts_with("torch.")
    })
}

/// `p.grad = flat[start:end]`: gradients that lie in one buffer.
fn lays_out(line: &str) -> bool {
    let value = line.split_once(".grad = ").map(|(_, value)| value.trim());
    value.is_some_and(|value| !value.starts_with("None"))
}

/// Whether code beside the classes of a file turns the gradient of a parameter of this name off, or may.
pub fn freezes(text: &str, classes: &[Span], name: &str) -> bool {
    if !text.contains("requires_grad") {
        return false;
    }
    let (mut start, mut above) = (0usize, "");
    for line in text.split_inclusive('\n') {
        let at = start;
        start += line.len();
        let outside = !classes.iter().any(|class| (class.start as usize..class.end as usize).contains(&at));
        if outside && line.contains("requires_grad") && turns_off(line, above, name) {
            return true;
        }
        if !line.trim().is_empty() {
            above = line.trim();
        }
    }
    false
}

fn turns_off(line: &str, above: &str, name: &str) -> bool {
    let Some((_, value)) = line.split_once(".requires_grad_(").or_else(|| line.split_once(".requires_grad = ")) else {
        return false;
    };
    if value.starts_with("True") || value.starts_with(')') {
        return false;
    }
    // `p.requires_grad_("lora_" in name)`, and `if "lora_" not in name:` above it
    if let Some((word, holds)) = named(value) {
        return name.contains(word) != holds;
    }
    match above.strip_prefix("if ").and_then(named) {
        Some((word, holds)) => name.contains(word) == holds,
        None => true,
    }
}

/// The word that a test looks for in a name, and whether it has to be there.
fn named(test: &str) -> Option<(&str, bool)> {
    let (word, rest) = test.split_once(" in ")?;
    let only = !rest.contains(" or ") && !rest.contains(" and ");
    let (word, holds) = match word.strip_suffix(" not") {
        Some(word) => (word, false),
        None => (word, true),
    };
    let word = word.trim().trim_matches(['"', '\'']);
    let plain = word.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    (only && plain && !word.is_empty()).then_some((word, holds))
}

#[cfg(test)]
mod tests {
    use super::{freezes, hands_on};

    #[test]
    fn a_test_of_names_says_what_is_frozen() {
        let text = "for n, p in model.named_parameters():\n    if \"q_norm\" in n:\n        p.requires_grad_(False)\n";
        assert!(freezes(text, &[], "q_norm.weight"));
        assert!(!freezes(text, &[], "wq.weight"));
        assert!(!freezes("p.requires_grad_(\"lora_\" in n)\n", &[], "lora_a.weight"));
        assert!(freezes("p.requires_grad_(\"lora_\" in n)\n", &[], "norm.weight"));
    }

    #[test]
    fn a_gradient_that_is_given_away_may_be_summed() {
        assert!(hands_on("        comm.sum_(p.grad)"));
        assert!(!hands_on("        grads.append(p.grad)"));
        assert!(!hands_on("        dist.all_reduce(p.grad, group=group)"));
    }
}
