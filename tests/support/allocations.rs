//! Counts how often each thread asks for memory.
#![expect(unsafe_code, reason = "an allocator is unsafe to write")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, and a count.
struct Counting;

thread_local! {
    /// How often this thread has asked.
    pub(crate) static ASKED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + 1));
        // SAFETY: as the caller has promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ASKED.with(|asked| asked.set(asked.get() + 1));
        // SAFETY: as the caller has promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread has asked for memory, or given some back.
pub(crate) fn asked() -> u64 {
    ASKED.get()
}
