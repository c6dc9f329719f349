//! Source locations and backtraces of panics in actors.
//!
//! A panic is caught as its message only. The hook of the process records the rest before the stack is unwound.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::sync::{Arc, Once};

/// Source of a panic.
#[derive(Debug, Clone)]
pub struct PanicSource {
    /// File, line and column.
    pub location: String,
    /// Stack of the panic. Function names and lines are looked up when it is shown.
    pub backtrace: Arc<Backtrace>,
}

thread_local! {
    static LAST: RefCell<Option<PanicSource>> = const { RefCell::new(None) };
}

/// Installs the hook, once. The hook that was there before runs, too.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let location = panic.location().map(ToString::to_string).unwrap_or_default();
            let source = PanicSource { location, backtrace: Arc::new(Backtrace::force_capture()) };
            LAST.with(|last| *last.borrow_mut() = Some(source));
            before(panic);
        }));
    });
}

/// Takes the source of the last panic of this thread.
pub(super) fn take() -> Option<PanicSource> {
    LAST.with(|last| last.borrow_mut().take())
}
