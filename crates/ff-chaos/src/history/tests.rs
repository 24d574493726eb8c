//! What is written down reads back, in real time.

use super::*;

#[test]
fn lines_have_the_documented_shape_and_read_back() {
    let entry = Entry {
        proc: "engine-1".into(),
        op_id: "engine-1-0".into(),
        op: Op::Cancel { id: "x".into() },
        phase: Phase::Ok,
        t_mono_ns: u64::MAX,
        result: Some(Outcome::Done),
    };
    let text = serde_json::to_string(&entry).unwrap();
    assert_eq!(
        text,
        r#"{"proc":"engine-1","op_id":"engine-1-0","op":"cancel","args":{"id":"x"},"#.to_owned()
            + r#""phase":"ok","t_mono_ns":18446744073709551615,"result":"done"}"#
    );
    assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
}

#[test]
fn a_torn_line_harms_nothing_but_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    fs::write(&path, "1\n2\n{\"to").unwrap();
    Journal::append_to(&path).unwrap().write(&3);
    let journalled = read::<u32>(&path).unwrap();
    assert_eq!((journalled.lines, journalled.torn), (vec![1, 2, 3], 1));
}

fn recorder(dir: &Path, seat: &str) -> Recorder {
    Recorder::open(dir, &Sitting::next(dir, seat)).unwrap()
}

#[test]
fn processes_that_run_at_the_same_time_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (recorder(dir.path(), "one"), recorder(dir.path(), "other"));
    let next = Sitting::next(dir.path(), "one");
    assert_eq!((next.round, next.before().unwrap().round), (2, 1));
    assert_eq!(next.before().unwrap().before(), None);
    let second = Recorder::open(dir.path(), &next).unwrap();
    let op = Op::Cancel { id: "x".into() };
    let mut written = Vec::new();
    for recorder in [&other, &one, &other, &second, &other] {
        let op_id = recorder.next_op_id();
        recorder.write(&op_id, &op, Phase::Invoke, None);
        written.push(op_id);
    }
    assert_eq!(written, ["other-1-0", "one-1-0", "other-1-1", "one-2-0", "other-1-2"]);
    let history = read_all(dir.path()).unwrap().lines;
    let read: Vec<_> = history.into_iter().map(|entry| entry.op_id).collect();
    assert_eq!(read, written);
}

#[test]
fn a_clock_that_is_set_back_changes_no_order() {
    let dir = tempfile::tempdir().unwrap();
    let line = |op_id: &str, t_mono_ns| Entry {
        proc: String::new(),
        op_id: op_id.into(),
        op: Op::Cancel { id: "x".into() },
        phase: Phase::Invoke,
        t_mono_ns,
        result: None,
    };
    for (seat, round, op_id, at) in [("a", 1, "1", 50), ("a", 2, "2", 20), ("b", 1, "3", 60)] {
        let path = Sitting { seat: seat.into(), round }.path(dir.path());
        Journal::append_to(&path).unwrap().write(&line(op_id, at));
    }
    let history = read_all(dir.path()).unwrap().lines;
    let read: Vec<_> = history.iter().map(|entry| entry.op_id.as_str()).collect();
    assert_eq!(read, ["1", "2", "3"]);
}

#[test]
fn only_the_last_call_decides_whether_an_operation_is_resolved() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = recorder(dir.path(), "engine");
    let op = |id: &str| Op::Cancel { id: id.into() };
    recorder.write("a", &op("a"), Phase::Invoke, None);
    recorder.write("b", &op("b"), Phase::Invoke, None);
    recorder.write("b", &op("b"), Phase::Info, None);
    recorder.write("c", &op("c"), Phase::Invoke, None);
    recorder.write("b", &op("b"), Phase::Invoke, None);
    recorder.write("b", &op("b"), Phase::Fail, None);
    recorder.write("c", &op("c"), Phase::Ok, None);
    let history = read_all(dir.path()).unwrap();
    let open: Vec<_> = unresolved(&history.lines).into_iter().map(|(id, _)| id).collect();
    assert_eq!(open, ["a"]);
}
