//! Losses that no gradient leads back from. In: a function, and those that it calls. Out: a raw collective through which alone the features
//! reach a loss, or the output of a model the value whose `backward()` is called; weights of a mixture that go through one, beside values
//! that go through a differentiable one. Never: where the part of this rank is put back, where anything else leads past the collective, or
//! what runs without gradients. Source: torch.distributed, whose collectives autograd does not see. Next: `gradient/mod.rs`.

use super::cut::{class_of, is_module, is_trained};
use super::found::Practice;
use super::gradient::{Walk, gives_loss, may_cut};
use super::made::{ASTRAY, Communicates, Cut, MODULE, PARAMS, direct, through};
use super::near;
use super::view::View;
use super::{Found, Lint};
use crate::project::{FuncRef, Project};

/// Words in names of losses.
const LOSSES: &[&str] = &["loss", "criterion", "contrast", "nce", "ntxent", "nt_xent"];

/// What losses are made with.
const OPERATIONS: &[&str] =
    &["cross_entropy", "CrossEntropy", "logsigmoid", "nll_loss", "NLLLoss", "BCEWith", "binary_cross", "logsumexp"];

/// Words in names of losses that are looked at and not trained on.
const WATCHED: &[&str] = &["metric", "log", "report", "valid", "test", "monitor", "track", "reduce", "average"];

/// Beginnings of words of what is no feature: numbers that scale the result.
const NUMBERS: &[&str] =
    &["scale", "temp", "tau", "bias", "margin", "alpha", "beta", "eps", "gamma", "coef", "world", "rank"];

/// What shows that of two kinds of features one is to have no gradient.
pub(super) const ONE_SIDED: &[&str] =
    &["momentum", "queue", "teacher", "target_", "freeze", "frozen", "ema", "memory", "stop_grad", "no_grad", "lock_"];

/// Stems of names of features that have none.
const KEYS: &[&str] = &[
    "q",
    "k",
    "query",
    "key",
    "neg",
    "negative",
    "target",
    "ref",
    "reference",
    "bank",
    "label",
    "class",
    "proto",
    "slow",
    "fixed",
    "old",
    "cached",
];

/// Names of features that a letter or a number tells apart.
const ROWS: &[&str] = &["z", "h", "p", "v", "emb", "embed", "feat", "feats", "features", "rep", "proj", "hidden"];

/// Last words of names of features.
const FEATURES: &[&str] = &["features", "feature", "feats", "feat", "embeds", "embed", "embeddings", "emb", "embs"];

/// Parts of names of the weights of a mixture, which are trained through what they weigh.
const WEIGHTS: &[&str] = &["prob", "weight", "score", "gate", "gating", "logit"];

/// Whether a function is named as one that computes a loss, or its class.
pub fn is_loss(project: &Project, at: FuncRef) -> bool {
    named(&project.qualname(at), LOSSES)
}

fn named(name: &str, words: &[&str]) -> bool {
    let name = name.to_lowercase();
    words.iter().any(|w| name.contains(w))
}

/// Losses whose features all go through raw collectives.
pub fn losses<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    let class = class_of(view);
    let module = class.is_some_and(|c| is_module(lint, c));
    if !is_loss(view.project, view.at) || named(&view.func.name, WATCHED) || module != (view.func.name == "forward") {
        return;
    }
    let text = view.text(view.spot(view.func.span));
    let file = view.file();
    // What leaves some of its values out of the gradient has one for the others.
    let is_trained_on = module || file.contains(".backward(") || text.contains("with torch.no_grad()");
    if !OPERATIONS.iter().any(|o| text.contains(o)) || !is_trained_on {
        return;
    }
    if !may_cut(lint, view) || !is_trained(lint, view) {
        return;
    }
    let Some(walk) = Walk::whole(lint, view) else { return };
    let numbers = bits(view, |name| named(name, NUMBERS));
    siblings(view, &walk, file, out);
    // Where a flag chooses, what is returned through a collective may be asked for without gradients only.
    if walk.firsts().iter().any(|returned| returned & PARAMS & !numbers != 0) {
        return;
    }
    for returned in walk.firsts() {
        if returned & ASTRAY != 0 || returned & MODULE != 0 && walk.has_submodules() {
            continue;
        }
        report(&walk.cuts, returned, |cut| cut.input & PARAMS & !numbers != 0, out);
    }
}

/// Features that a loss takes in pairs, of which one reaches it through a raw collective alone: `z_j @ all_z_i.T`.
fn siblings(view: &View<'_>, walk: &Walk<'_, '_>, file: &str, out: &mut Found) {
    let names: Vec<&str> = view.func.params.iter().take(30).map(|p| p.name.as_str()).collect();
    let returned = walk.firsts().iter().fold(0, |all, made| all | made);
    if returned & (ASTRAY | MODULE) != 0 || near::has_any(&near::bare(file), ONE_SIDED) || file.contains("detach") {
        return;
    }
    for (i, name) in names.iter().enumerate() {
        let paired = names.iter().enumerate().any(|(j, other)| {
            let (own, of_other) = (1 << i, 1 << j);
            i != j && returned & own == 0 && returned & of_other != 0 && are_siblings(name, other)
        });
        if paired {
            report(&walk.cuts, returned, |cut| cut.input & PARAMS == 1 << i, out);
        }
    }
}

/// Whether two names say that values are of one kind: `z_i` and `z_j`, `x1` and `x2`, `image_features` and `text_features`.
pub(super) fn are_siblings(a: &str, b: &str) -> bool {
    let parts = |name: &str| match name.rsplit_once('_') {
        Some((stem, last)) => (stem.to_owned(), last.to_owned()),
        None => {
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
            (stem.to_owned(), name[stem.len()..].to_owned())
        }
    };
    let ((stem, last), (other, end)) = (parts(a), parts(b));
    let counts = |word: &str| word.len() == 1 && ROWS.contains(&stem.as_str());
    let numbered = stem == other && counts(&last) && counts(&end);
    numbered
        || last == end
            && FEATURES.contains(&last.as_str())
            && [stem, other].iter().all(|s| !s.is_empty() && !KEYS.contains(&s.as_str()))
}

/// Values whose `backward()` is called, and that come from a model through raw collectives alone.
pub fn trained<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    let gives = gives_loss(lint, view);
    let takes = view.text(view.spot(view.func.span)).contains(".backward()");
    if !(takes || gives) || !may_cut(lint, view) || !is_trained(lint, view) {
        return;
    }
    // Something here is not trained: it may be what is gathered.
    let text = view.text(view.spot(view.func.span));
    if text.contains("requires_grad_(False)") || text.contains("requires_grad = False") {
        return;
    }
    let Some(walk) = Walk::whole(lint, view) else { return };
    let returned = if gives { walk.firsts() } else { Vec::new() };
    for root in walk.roots.iter().chain(&returned).filter(|root| **root & (MODULE | ASTRAY) == 0) {
        report(&walk.cuts, *root, |cut| cut.input & MODULE != 0, out);
    }
}

/// Weights that go through a raw collective, where what they weigh goes through a differentiable one.
pub fn gates<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    let weights = bits(view, |name| name.split('_').any(|w| WEIGHTS.iter().any(|p| w.starts_with(p))));
    let module = class_of(view).is_some_and(|c| is_module(lint, c));
    if weights == 0 || view.func.name != "forward" || !module || !may_cut(lint, view) || !is_trained(lint, view) {
        return;
    }
    let Some(walk) = Walk::of(lint, view) else { return };
    for returned in walk.firsts() {
        let other = |own: u128| {
            walk.cuts.iter().enumerate().any(|(j, o)| {
                let arguments = o.input & PARAMS;
                o.how == Communicates::Differentiable && returned & through(j) != 0 && arguments & !own != 0
            })
        };
        let only = |cut: &Cut| {
            let own = cut.input & PARAMS;
            own.count_ones() == 1 && own & weights != 0 && cut.input & MODULE == 0 && returned & own == 0 && other(own)
        };
        report(&walk.cuts, returned, only, out);
    }
}

/// Collectives into buffers on the way to a value, with nothing that leads past them.
fn report(cuts: &[Cut], made: u128, wanted: impl Fn(&Cut) -> bool, out: &mut Found) {
    for (k, cut) in cuts.iter().enumerate() {
        let reaches = made & through(k) != 0 && made & direct(k) == 0;
        let told = |(place, practice): &(crate::source::Place, Practice)| {
            *place == cut.place && matches!(practice, Practice::GradientCut { .. })
        };
        if reaches && cut.how == Communicates::IntoBuffer && wanted(cut) && !out.iter().any(told) {
            let practice = Practice::GradientCut { collective: cut.name.clone(), call: cut.call, before: None };
            out.push((cut.place, practice));
        }
    }
}

/// The bits of the parameters whose names are as asked.
fn bits(view: &View<'_>, wanted: impl Fn(&str) -> bool) -> u128 {
    view.func.params.iter().enumerate().take(30).filter(|(_, p)| wanted(&p.name)).fold(0, |all, (i, _)| all | 1 << i)
}
