use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::Lamport);

fn message(json: &str) -> Message {
    serde_json::from_str(&format!(r#"{{"Lamport":{json}}}"#)).unwrap()
}

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
    let id = bench.acquire(3, 20);
    bench.deliver_all();
    assert_eq!(bench.granted.last(), Some(&id));
}

/// S1, figure 6.16, in this algorithm: the requests of 1 and 3 cross, stamped 8 and 12.
#[test]
fn figure_6_16() {
    let mut bench = Bench::new(3, SPEC);
    let (first, second) = (bench.acquire(1, 8), bench.acquire(3, 12));
    bench.deliver_all();
    assert_eq!(bench.granted, [first]);
    assert_eq!(bench.busy.last(), Some(&second), "it knows that it is not");
    bench.release(first);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second]);
}

/// S3 compares bare clocks, and leaves it open what is to be where they are equal.
#[test]
fn equal_clocks_are_ordered_by_id() {
    let mut bench = Bench::new(2, SPEC);
    let (second, first) = (bench.acquire(2, 8), bench.acquire(1, 8));
    bench.deliver_all();
    assert_eq!(bench.granted, [first]);
    bench.release(first);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second]);
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
    bench.deliver_all();
    assert_eq!(bench.granted, [first]);
    bench.release(first);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second]);
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
    bench.deliver_all();
    assert_eq!(bench.granted, [first]);
    bench.release(first);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second]);
}

/// An ACK says when it was sent. S3 writes it with the stamp of a request that waits, which would
/// block for ever.
#[test]
fn an_acknowledgement_is_later_than_what_it_acknowledges() {
    let mut bench = Bench::new(3, SPEC);
    bench.acquire(2, 8);
    bench.deliver(2, 1);
    assert_eq!(bench.deliver(1, 2), message(r#"{"Ack":{"clock":9}}"#));
    // Also of one that waits itself, ahead of the other.
    let mut bench = Bench::new(3, SPEC);
    bench.acquire(1, 8);
    bench.acquire(2, 9);
    bench.deliver(2, 1);
    let (_, _, ack) = bench.wire.pop().unwrap();
    assert_eq!(ack, message(r#"{"Ack":{"clock":10}}"#));
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
    let second = bench.acquire(2, 20);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second], "the copy is not waited for");
    bench.release(second);
    bench.deliver_all();
    let third = bench.acquire(1, 30);
    bench.deliver_all();
    bench.receive(1, 2, &release);
    bench.acquire(2, 40);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second, third]);
}

/// The queue is the view's table; everybody must be heard from anew, be it by its own request.
#[test]
fn after_a_view_change_the_holder_is_inside_and_waiters_ask_anew() {
    let holder = request(2, 1, 5);
    let waiters = [request(3, 1, 7), request(1, 1, 9)];
    let mut bench = Bench::rebuilt(3, SPEC, &[holder.id], &waiters);
    assert_eq!(bench.kinds(), ["REQUEST"; 4]);
    bench.deliver_all();
    assert_eq!(bench.granted, []);
    for id in [holder.id, waiters[0].id, waiters[1].id] {
        bench.release(id);
        bench.deliver_all();
    }
    assert_eq!(bench.granted, [waiters[0].id, waiters[1].id]);

    let mut bench = Bench::rebuilt(3, SPEC, &[], &waiters);
    assert_eq!(bench.granted, [], "2 may have asked since, and earlier");
    bench.deliver_all();
    assert_eq!(bench.granted, [waiters[0].id]);
}
