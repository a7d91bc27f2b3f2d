//! One stack of kernel, native and Python frames. Pure.
//!
//! CPython runs Python frames in a C function, the eval loop: before 3.11 one call of it a Python frame, since then one
//! call for a Python frame and all that it calls in Python ([`PythonFrame::entry`] marks the outermost of them). Each
//! eval loop in the native stack is replaced by the Python frames that it runs.
//!
//! Between the eval loop and what it calls lie CPython's ways to pass arguments (`_PyFunction_Vectorcall`,
//! `cfunction_vectorcall_O`, `PyObject_Call`): they say nothing that the frames around them do not, and are left out.
//! What does something stays: `lock_PyThread_acquire_lock`, `time_sleep`, `builtin_sorted`, `slot_tp_iternext`, and
//! how the thread was started.

use std::sync::Arc;

use crate::model::{Frame, Process, PythonFrame, StackEnd, Thread};

/// CPython's eval loop (Python/ceval.c).
const EVAL: &str = "_PyEval_EvalFrameDefault";

/// Functions of CPython that only pass a call on, 3.8 to 3.14 (Objects/call.c, methodobject.c, descrobject.c,
/// classobject.c, Python/ceval.c): whole names, without what the compiler appends (`.part.0`).
const GLUE: &[&str] = &[
    "call_function",
    "do_call_core",
    "function_code_fastcall",
    "method_vectorcall",
    "object_vacall",
    "trace_call_function",
    "_PyEval_EvalCode",
    "_PyEval_EvalCodeWithName",
    "_PyEval_EvalFrame",
    "_PyEval_Vector",
    "PyEval_EvalCode",
    "PyEval_EvalCodeEx",
    "PyEval_EvalFrame",
    "PyEval_EvalFrameEx",
];

/// Their families, by the beginning of the name.
const GLUE_FAMILIES: &[&str] = &[
    "cfunction_",
    "method_vectorcall_",
    "_PyCFunction_",
    "_PyFunction_",
    "_PyMethodDef_",
    "_PyObject_Call",
    "_PyObject_FastCall",
    "_PyObject_MakeTpCall",
    "_PyObject_Vectorcall",
    "_PyVectorcall_",
    "PyCFunction_Call",
    "PyObject_Call",
    "PyObject_Vectorcall",
    "PyVectorcall_",
];

/// The frames of `thread`, innermost first: kernel, then native with the interpreter's replaced by Python's.
///
/// No Python frame is ever lost or moved past another one. Where the stacks do not match (the native walk stopped
/// early, the thread moved between the reads), what is left of the Python frames follows the last eval loop; an eval
/// loop that has no Python frame left stays as a native frame.
pub fn merge(process: &Process, thread: &Thread) -> Vec<Arc<Frame>> {
    let shared = |index: &u32| process.frames.get(*index as usize);
    let native: Vec<&Arc<Frame>> = thread.native.frames.iter().filter_map(shared).collect();
    let mut python = Python { process, frames: thread.python.as_ref().map_or(&[], |python| &python.frames) };
    let interpreter = native.iter().find(|frame| is_eval(frame)).and_then(|frame| frame.module.as_deref());

    let mut merged: Vec<Arc<Frame>> = thread.kernel.iter().filter_map(shared).cloned().collect();
    // Where Python frames go that no eval loop claims.
    let mut after_last_eval = None;
    let has_python = !python.frames.is_empty();
    for frame in native {
        if is_eval(frame) {
            if !python.run(&mut merged) {
                merged.push(Arc::clone(frame));
            }
            after_last_eval = Some(merged.len());
        } else if !(has_python
            && interpreter.is_some()
            && is_glue(frame)
            && frame.module.as_deref() == interpreter)
        {
            merged.push(Arc::clone(frame));
        }
    }
    let mut rest = Vec::new();
    while python.run(&mut rest) {}
    // A whole walk went past the interpreter: the rest belongs inside, before what started the thread.
    let place = after_last_eval.filter(|_| thread.native.end == StackEnd::Complete).unwrap_or(merged.len());
    merged.splice(place..place, rest);
    merged
}

/// The Python frames that no eval loop has claimed yet.
struct Python<'a> {
    process: &'a Process,
    frames: &'a [PythonFrame],
}

impl Python<'_> {
    /// Moves what one call of the eval loop runs to `merged`; `false`: nothing is left.
    fn run(&mut self, merged: &mut Vec<Arc<Frame>>) -> bool {
        if self.frames.is_empty() {
            return false;
        }
        let count =
            self.frames.iter().position(|frame| frame.entry).map_or(self.frames.len(), |index| index + 1);
        let (taken, left) = self.frames.split_at(count);
        merged
            .extend(taken.iter().filter_map(|frame| self.process.frames.get(frame.frame as usize).cloned()));
        self.frames = left;
        true
    }
}

/// The name as it is in the source: compilers append `.cold`, `.part.0`, `.constprop.0`, `.lto_priv.0`.
fn source_name(frame: &Frame) -> &str {
    frame.function.split('.').next().unwrap_or_default()
}

fn is_eval(frame: &Frame) -> bool {
    source_name(frame) == EVAL
}

fn is_glue(frame: &Frame) -> bool {
    let name = source_name(frame);
    GLUE.contains(&name) || GLUE_FAMILIES.iter().any(|family| name.starts_with(family))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{FrameKind, NativeStack, PythonThread};

    const LIBPYTHON: &str = "/usr/lib/libpython.so";
    const LIBC: &str = "/usr/lib/libc.so.6";

    fn frame(kind: FrameKind, function: &str, module: Option<&str>) -> Frame {
        Frame {
            kind,
            function: function.into(),
            file: None,
            line: None,
            module: module.map(Into::into),
            address: None,
        }
    }

    /// A thread from words: `k:` kernel, `c:` libc, `p:` libpython; Python frames with `!` are entries.
    fn thread(stack: &[&str], python: &[&str], end: StackEnd) -> (Process, Thread) {
        let mut process = Process::default();
        let mut add = |frame: Frame| {
            process.frames.push(Arc::new(frame));
            process.frames.len() as u32 - 1
        };
        let mut thread = Thread::default();
        for word in stack {
            let (kind, function) = word.split_once(':').expect("kind and name");
            match kind {
                "k" => thread.kernel.push(add(frame(FrameKind::Kernel, function, None))),
                "c" => thread.native.frames.push(add(frame(FrameKind::Native, function, Some(LIBC)))),
                _ => thread.native.frames.push(add(frame(FrameKind::Native, function, Some(LIBPYTHON)))),
            }
        }
        let frames = python
            .iter()
            .map(|word| PythonFrame {
                frame: add(frame(FrameKind::Python, word.trim_end_matches('!'), None)),
                entry: word.ends_with('!'),
            })
            .collect();
        thread.python = Some(PythonThread { frames, ..PythonThread::default() });
        thread.native = NativeStack { end, ..thread.native };
        (process, thread)
    }

    fn merged(stack: &[&str], python: &[&str], end: StackEnd) -> Vec<String> {
        let (process, thread) = thread(stack, python, end);
        merge(&process, &thread).iter().map(|frame| frame.function.clone()).collect()
    }

    #[test]
    fn one_eval_loop_a_frame_before_3_11() {
        let stack = [
            "k:futex_wait",
            "c:do_futex_wait",
            "p:PyThread_acquire_lock_timed",
            "p:lock_PyThread_acquire_lock",
            "p:cfunction_vectorcall_FASTCALL_KEYWORDS",
            "p:_PyEval_EvalFrameDefault",
            "p:_PyFunction_Vectorcall",
            "p:_PyEval_EvalFrameDefault.cold",
            "p:_PyEval_EvalCodeWithName.part.0",
            "p:_PyFunction_Vectorcall",
            "p:PyObject_Call",
            "p:thread_run",
            "c:start_thread",
        ];
        let expected = [
            "futex_wait",
            "do_futex_wait",
            "PyThread_acquire_lock_timed",
            "lock_PyThread_acquire_lock",
            "wait",
            "run",
            "thread_run",
            "start_thread",
        ];
        assert_eq!(merged(&stack, &["wait!", "run!"], StackEnd::Complete), expected);
    }

    #[test]
    fn one_eval_loop_for_many_frames_since_3_11() {
        let stack = [
            "c:clock_nanosleep",
            "p:time_sleep",
            "p:_PyEval_EvalFrameDefault",
            "p:_PyEval_Vector",
            "p:_PyObject_VectorcallTstate",
            "p:list_sort",
            "p:builtin_sorted",
            "p:_PyEval_EvalFrameDefault",
            "p:method_vectorcall",
            "p:thread_run",
        ];
        let expected = [
            "clock_nanosleep",
            "time_sleep",
            "inner",
            "key",
            "list_sort",
            "builtin_sorted",
            "sort",
            "run",
            "_bootstrap",
            "thread_run",
        ];
        assert_eq!(
            merged(&stack, &["inner", "key!", "sort", "run", "_bootstrap!"], StackEnd::Complete),
            expected
        );
    }

    #[test]
    fn a_walk_that_stopped_early_is_followed_by_python() {
        let stopped = StackEnd::Stopped("no unwind information".into());
        assert_eq!(merged(&["c:poll", "c:0x1234"], &["a", "b!"], stopped), ["poll", "0x1234", "a", "b"]);
    }

    #[test]
    fn without_native_frames_python_follows_the_kernel() {
        assert_eq!(merged(&["k:futex_wait"], &["a", "b!"], StackEnd::NotWalked), ["futex_wait", "a", "b"]);
    }

    #[test]
    fn python_frames_that_no_loop_claims_stay_inside() {
        let stack = ["c:poll", "p:_PyEval_EvalFrameDefault", "p:thread_run", "c:start_thread"];
        assert_eq!(
            merged(&stack, &["a!", "b!", "c!"], StackEnd::Complete),
            ["poll", "a", "b", "c", "thread_run", "start_thread"]
        );
    }

    #[test]
    fn a_loop_without_python_frames_stays() {
        let stack = ["p:_PyEval_EvalFrameDefault", "p:_PyFunction_Vectorcall", "p:_PyEval_EvalFrameDefault"];
        assert_eq!(merged(&stack, &["a!"], StackEnd::Complete), ["a", "_PyEval_EvalFrameDefault"]);
        assert_eq!(
            merged(&stack, &[], StackEnd::Complete).len(),
            3,
            "nothing is hidden where Python was not read"
        );
    }

    #[test]
    fn a_name_like_glue_in_another_library_stays() {
        let stack = ["c:call_function", "p:call_function", "p:_PyEval_EvalFrameDefault"];
        assert_eq!(merged(&stack, &["a!"], StackEnd::Complete), ["call_function", "a"]);
    }

    proptest! {
        #[test]
        fn no_python_frame_is_lost_or_moved(
            natives in prop::collection::vec(0..4_usize, 0..20),
            entries in prop::collection::vec(any::<bool>(), 0..20),
            whole in any::<bool>(),
        ) {
            let kinds = ["c:poll", "p:_PyEval_EvalFrameDefault", "p:_PyFunction_Vectorcall", "k:schedule"];
            let stack: Vec<&str> = natives.iter().filter_map(|&kind| kinds.get(kind).copied()).collect();
            let python: Vec<String> = entries
                .iter()
                .enumerate()
                .map(|(index, entry)| format!("py{index}{}", if *entry { "!" } else { "" }))
                .collect();
            let words: Vec<&str> = python.iter().map(String::as_str).collect();
            let end = if whole { StackEnd::Complete } else { StackEnd::Limit };
            let result = merged(&stack, &words, end);
            let shown: Vec<&str> = result.iter().map(String::as_str).filter(|name| name.starts_with("py")).collect();
            let expected: Vec<&str> = words.iter().map(|word| word.trim_end_matches('!')).collect();
            prop_assert_eq!(shown, expected);
            let count = |name: &str| result.iter().filter(|shown| *shown == name).count();
            prop_assert_eq!(count("poll"), stack.iter().filter(|word| **word == "c:poll").count());
            prop_assert_eq!(count("schedule"), stack.iter().filter(|word| **word == "k:schedule").count());
        }
    }
}
