//! The baseline. In: findings recorded once, then an edited tree. Out: only what is new. Never: line numbers that
//! matter. Next: `src/cli/baseline.rs`.

use super::support::{BAD, Session};

#[test]
fn a_recorded_finding_is_silent_until_its_line_changes() {
    let session = Session::new();
    session.write("old.py", BAD);
    let missing = session.run(&["check", "--baseline", "base.json"]);
    assert!(missing.code == 2 && missing.err.contains("--update-baseline"), "{missing:?}");
    assert_eq!(session.run(&["check", "--update-baseline"]).code, 2, "a baseline needs a name");
    let written = session.run(&["check", "--baseline", "base.json", "--update-baseline"]);
    assert_eq!(written.err, "baseline `base.json` records 1 finding\n");
    assert_eq!(written.code, 0);
    session.write("old.py", format!("\n\n\n{BAD}"));
    let moved = session.run(&["check", "--baseline", "base.json"]);
    assert!(moved.code == 0 && moved.out.is_empty(), "{moved:?}");
    assert!(moved.err.contains("1 in the baseline"), "{moved:?}");
    session.write("old.py", format!("{BAD}{BAD}"));
    let doubled = session.run(&["check", "--baseline", "base.json", "--output-format", "concise"]);
    assert_eq!((doubled.code, doubled.out.lines().count()), (1, 1), "{doubled:?}");
}

#[test]
fn stale_records_are_named_and_a_partial_update_keeps_the_rest() {
    let session = Session::new();
    session.write("a.py", BAD);
    session.write("b.py", BAD);
    session.run(&["check", "--baseline", "base.json", "--update-baseline"]);
    session.write("a.py", "x = 1\n");
    let stale = session.run(&["check", "--baseline", "base.json"]);
    assert!(stale.code == 0 && stale.err.contains("1 finding of the baseline no longer occur"), "{stale:?}");
    session.run(&["check", "--baseline", "base.json", "--update-baseline", "a.py"]);
    let clean = session.run(&["check", "--baseline", "base.json"]);
    assert!(clean.code == 0 && !clean.err.contains("no longer"), "{clean:?}");
    assert_eq!(session.run(&["check"]).code, 1, "the record of `b.py` was kept, not the finding lost");
}
