//! A small group in the laboratory's cluster, under its checkers: members, their disks and their
//! callers, and all that goes wrong in a campaign. Which kind of group it is, and what happens in it,
//! the input chooses.
//!
//! In half of the groups the network is merely bad: there everything is judged, and in the end
//! everybody is served. In the others datagrams are forged, too, with the right checksums. What they
//! break is broken by design, where nothing is sealed; but also there nothing panics or goes on for
//! ever, and every caller is answered once.
#![no_main]

use distlock_lab::campaign::run_chosen;
use distlock_lab::choices::Choices;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(violation) = run_chosen(Choices::from_bytes(bytes), None) {
        panic!("{violation}");
    }
});
