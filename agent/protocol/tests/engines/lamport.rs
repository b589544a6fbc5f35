use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::Lamport);

/// S3, 3.4: 3(N-1) messages.
#[test]
fn all_are_told_and_all_acknowledge() {
    let mut bench = Bench::new(4, SPEC);
    let id = bench.acquire(2, 8);
    assert_eq!(bench.kinds(), ["REQUEST"; 3]);
    assert_eq!(bench.deliver_all(), 6);
    assert_eq!(bench.granted, [id]);
    bench.release(id);
    assert_eq!(bench.kinds(), ["RELEASE"; 3]);
    bench.deliver_all();
    let id = bench.ask(3, 20);
    assert_eq!(bench.granted.last(), Some(&id));
}

/// The first optimisation: of two requests that cross only the later one is acknowledged; the
/// other's sender has been told as much by that.
#[test]
fn a_later_request_stands_for_the_acknowledgement() {
    let mut bench = Bench::new(2, SPEC);
    let (first, second) = (bench.acquire(1, 8), bench.acquire(2, 12));
    bench.deliver(1, 2);
    assert_eq!(bench.kinds(), ["REQUEST"], "2 acknowledges nothing");
    bench.deliver(2, 1);
    assert_eq!(bench.granted, [first], "the request told it");
    assert_eq!(bench.kinds(), ["ACK"]);
    bench.serves(&[first, second]);
}

/// Having heard from all is not enough: S3's own queue has one's own request in it, too.
#[test]
fn an_earlier_request_is_waited_for_though_all_have_acknowledged() {
    let mut bench = Bench::new(3, SPEC);
    let (first, second) = (bench.acquire(1, 8), bench.acquire(2, 12));
    bench.deliver(1, 2);
    bench.deliver(2, 1);
    bench.deliver(1, 2);
    bench.deliver(2, 3);
    bench.deliver(3, 2);
    assert_eq!(bench.granted, []);
    bench.serves(&[first, second]);
}

/// An ACK says when it was sent. S3 writes it with the stamp of a request that waits, which would
/// block for ever.
#[test]
fn an_acknowledgement_is_later_than_what_it_acknowledges() {
    let mut bench = Bench::new(3, SPEC);
    bench.acquire(2, 8);
    bench.deliver(2, 1);
    assert_eq!(
        bench.deliver(1, 2),
        message(SPEC.algorithm, r#"{"Ack":{"clock":9}}"#)
    );
    // Also of one that waits itself, ahead of the other.
    let mut bench = Bench::new(3, SPEC);
    bench.acquire(1, 8);
    bench.acquire(2, 9);
    bench.deliver(2, 1);
    let (_, _, ack) = bench.wire.pop().unwrap();
    assert_eq!(ack, message(SPEC.algorithm, r#"{"Ack":{"clock":10}}"#));
}

#[test]
fn a_cancelled_request_is_taken_out_of_all_queues() {
    let mut bench = Bench::new(3, SPEC);
    let (given_up, wanted) = (bench.acquire(1, 8), bench.acquire(3, 12));
    bench.deliver(1, 3);
    bench.cancel(given_up);
    bench.deliver_all();
    assert_eq!(bench.granted, [wanted]);
}

/// G5: a copy of a request that is over does not come back into the queue; nor does a RELEASE that
/// comes twice take the next request out.
#[test]
fn what_comes_twice_changes_nothing() {
    let mut bench = Bench::new(2, SPEC);
    let first = bench.acquire(1, 8);
    let (_, _, request) = bench.wire[0].clone();
    bench.deliver_all();
    bench.release(first);
    let release = bench.deliver(1, 2);
    bench.receive(1, 2, &request);
    let second = bench.ask(2, 20);
    assert_eq!(bench.granted, [first, second], "the copy is not waited for");
    bench.leave(second);
    let third = bench.ask(1, 30);
    bench.receive(1, 2, &release);
    bench.ask(2, 40);
    assert_eq!(bench.granted, [first, second, third]);
}
