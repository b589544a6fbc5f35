/*
 * Leases: nobody is let in while the lease of a former holder runs, by its own clock.
 *
 * One session is watched, that of "the holder", a member on host 0, inside from the start. Views
 * keep that session or leave it out; voters come and go, restart, lose their states; files come to
 * name other leases; an operator founds the group anew. As soon as a view without the holder is in
 * force, or another cluster is live, another member may be let in. The members beside the holder
 * need no state: what is true of the holder in one view is true of each of them in the next.
 *
 * Written from the documents, and not from the code: "design" is doc/design.md, "Leases N" rule N
 * of its "What a voter remembers of leases", "Founding N" of "How a cluster is founded".
 */

/* ---- Bounds ---- */

#ifndef EPOCHS
#define EPOCHS   1              /* the newest view; the first is 0 */
#endif
#ifndef LENGTHS
#define LENGTHS  2              /* leases last 1 to LENGTHS units of the clock that counts them */
#endif
#ifndef LOSSES
#define LOSSES   0              /* states that are lost */
#endif
/* With changes of voters and leases of two lengths the world is too large for all at once: two views
   only without restarts, and then losses only without an operator's word. */
#ifndef RESTARTS
#define RESTARTS true           /* hosts restart */
#endif
#ifndef STEP
#define STEP     atomic         /* check.sh makes one step of it where stories are to be short */
#endif
#if defined(ANY_RATE) || defined(WITHOUT_BOOTTIME)
#define TICK     atomic
#else
#define TICK     STEP
#endif

/*
 * Drift. Time is counted by the holder's clock. While it advances by one, each other clock does so
 * by one or by two, anew each time: rho is 1/3, and W(l) = l (1 + rho) / (1 - rho) = 2 l (design,
 * How a view is formed). Clocks that are slower than the holder's only make others wait longer.
 * Unless ANY_RATE is defined, all others gain as much as they may: all that ends with their time is
 * a wait, after which something may be done, and need not be.
 */
#ifdef WITHOUT_DRIFT
#define W(l)     (l)
#else
#define W(l)     (2 * (l))
#endif
#define LONG_AGO (2 * LENGTHS)  /* where counters of past time stand still */

#define BIT(h)          (1 << (h))
#define HAS(set, h)     (((set) >> (h)) & 1)
#define COUNT(set)      (HAS(set, 0) + HAS(set, 1) + HAS(set, 2))
#define MOST(some, all) (2 * COUNT((some) & (all)) > COUNT(all))
#define EACH(p)         (p(0) | (p(1) << 1) | (p(2) << 2))
#define MIN(a, b)       ((a) < (b) -> (a) : (b))
#define MAX(a, b)       ((a) > (b) -> (a) : (b))
#define LESS(a, b)      ((a) > (b) -> (a) - (b) : 0)
#define ALL             7
#define NONE            7

/* ---- State ---- */

/* The holder's session. */
byte length;                    /* its lease, as its file says */
byte lease;                     /* what is left of it */
byte lease_epoch;               /* the view under which it was renewed last */
byte asked;                     /* what the request under way is still good for */
byte asked_epoch;               /* the view that the answers to it have to name */
byte renewed;                   /* the voters that have answered it */
bool runs = true;               /* its agent. Without it clients keep the lock until the lease
                                   ends: design, Rules of leases and views, 8 */

/* Views. One is certified an epoch (views.pml), so they are a chain. */
byte newest;                    /* proposed, and perhaps certified */
byte certified;
byte in_force;
bool holds[EPOCHS + 1];         /* the holder's session is in that view */
byte voters[EPOCHS + 1];

/* Voters. On disk: endorsed, longest, next. */
byte endorsed[3];               /* the epoch of the newest view that each has endorsed */
byte longest[3];                /* lease that may still run */
byte next[3];                   /* lease that was renewed while longest was longer */
byte since[3];                  /* it renewed the holder's lease, or was started */
byte since_longest[3];          /* it renewed a lease of length longest, or was started */
byte wait[3];                   /* that its endorsement asks for, by the coordinator's clock */
byte gone;                      /* whose vote is void: another birth */
byte blank;                     /* whose disk is, too */
byte permits;                   /* where the operator has said recover */
byte recalls;                   /* ... and the longest lease was on disk */
byte of_leader;                 /* what the voter that comes is told to begin with */
byte taught;                    /* new voters that have to begin with the holder's lease, and do
                                   not: only without Leases 5 */
byte losses;
#ifdef WITHOUT_WRITING_LONGEST
/* The voter renews first, and writes when it has time: not before it is restarted. */
byte written[3] = LENGTHS;
#define FORGETS(h)  (longest[h] != written[h])
#else
#define FORGETS(h)  false
#endif

bool another;                   /* another member was let in */
bool ready;
byte v, by, listed, file;

#define ENDORSED(h)     (endorsed[h] == newest)
#define WAITED(h)       (endorsed[h] == newest && wait[h] == 0)
#define FROM_BOTH(some) (MOST(some, voters[newest - 1]) && MOST(some, voters[newest]))
#define GO_ON           (ready && !another)
#define OF_PARENT       (newest > 0 -> voters[newest - 1] : 0)
#define COUNTS_TIME(h)  HAS(voters[newest] | OF_PARENT | blank | permits, h)

/* distlock(7), What is promised: one holder at a time, that is one whose lease is not over. */
#define TWO_INSIDE      (another && lease > 0)

inline start_again(h) {
    since[h] = 0;
    since_longest[h] = 0;
    if
    :: h == 0 -> runs = false; asked = 0; asked_epoch = 0; renewed = 0
    :: else
    fi
}

/* ---- The holder ---- */

/* distlock(7), A process is stopped or paused: a majority answers. Leases 6: the voters of one view,
   which is known by its certificate. */
#ifdef WITHOUT_CERTIFIED_VIEWS
#define KNOWN(epoch) true
#else
#define KNOWN(epoch) (epoch <= certified)
#endif
inline count_answers() {
    if
    :: MOST(renewed, voters[asked_epoch]) && KNOWN(asked_epoch) ->
#ifdef WITHOUT_SENDING_TIME
       lease = length;
#else
       lease = MAX(lease, asked);
#endif
       lease_epoch = asked_epoch;
       printf("# the holder's lease runs for %d\n", lease);
       asked = 0; renewed = 0; asked_epoch = 0
    :: else
    fi
}

active proctype holder() {
    atomic {
        length = LENGTHS;
        longest[0] = LENGTHS; longest[1] = LENGTHS; longest[2] = LENGTHS;
#ifdef SHORTER_LEASES
        /* Voters remember a longer lease than the holder's, which they have just renewed. */
        if :: length = 1 :: length = 2 :: length = LENGTHS fi;
        if
        :: length < LENGTHS -> next[0] = length; next[1] = length; next[2] = length
        :: else
        fi;
#endif
        lease = length;
        holds[0] = true;
#ifdef VOTERS
        voters[0] = VOTERS;
#else
        if :: voters[0] = 6 :: voters[0] = 7 fi;
#endif
        /* Only voters remember leases. */
        longest[0] = longest[0] * HAS(voters[0], 0); next[0] = next[0] * HAS(voters[0], 0);
        longest[2] = longest[2] * HAS(voters[0], 2); next[2] = next[2] * HAS(voters[0], 2);
        printf("# the holder's lease is %d, the voters are %d (bits)\n", length, voters[0]);
        ready = true
    }
    do
    /* design, Rules of leases and views, 4: a lease counts from when its renewal was sent. Only the
       requests that a voter answers are looked at, so there is one at a time. */
    :: STEP {
        ready && runs && asked == 0 && holds[newest] ->
        asked = length; asked_epoch = newest;
        printf("# the holder asks for its lease, in view %d\n", newest)
    }
    :: STEP {
        ready && runs && asked == 0 && newest > 0 && holds[newest - 1] ->
        asked = length; asked_epoch = newest - 1;
        printf("# the holder asks for its lease, in view %d\n", newest - 1)
    }
    od
}

/* ---- Voters ---- */

#define me (_pid - 1)

#ifdef WITHOUT_RENEWALS_ENDING
#define MAY_RENEW(h) (endorsed[h] != NONE && endorsed[h] >= asked_epoch)
#else
/* design, How a view is formed, 3. */
#define MAY_RENEW(h) (endorsed[h] == asked_epoch && holds[asked_epoch])
#endif

/* Leases 5, on disk with its first endorsement. From then on the voter counts the time. Views do not
   need it, as one of those that endorse the next view has renewed the lease; a founding does, where
   the others have lost their states. */
inline begin(h) {
#ifdef WITHOUT_LEADERS_LONGEST
    /* It knows the lease of its file alone. */
    longest[h] = MAX(longest[h], 1);
    taught = taught | (longest[h] < length && of_leader >= length -> BIT(h) : 0);
#else
    longest[h] = MAX(longest[h], of_leader);
#endif
    since_longest[h] = 0
}

active [3] proctype voter() {
    do
    /* Leases 1: longest is on disk before the lease is renewed. distlock(7), A process is stopped
       or paused: a majority has to answer. */
    :: STEP {
        ready && asked > 0 && MAY_RENEW(me) && HAS(voters[asked_epoch], me) &&
        !HAS(gone | renewed, me) ->
        renewed = renewed | BIT(me);
        since[me] = 0;
        if
        :: length >= longest[me] -> longest[me] = length; since_longest[me] = 0
        :: else -> next[me] = MAX(next[me], length)
        fi;
        printf("# voter %d renews it\n", me);
        count_answers()
    }
    /* Leases 2, for the shortest lease that a file may name, and one more. */
    :: atomic {
        GO_ON && longest[me] > MAX(next[me], 1) && since_longest[me] >= W(longest[me]) &&
        !HAS(gone, me) ->
        if
#ifdef WITHOUT_NEXT
        :: longest[me] = 1
#else
        :: longest[me] = MAX(next[me], 1)
        :: next[me] < 2 && longest[me] > 2 -> longest[me] = 2
#endif
        fi;
        next[me] = 0;
        since_longest[me] = 0;
#ifdef WITHOUT_WRITING_LONGEST
        written[me] = longest[me];
#endif
        printf("# voter %d: the longest lease that may run is %d\n", me, longest[me])
    }
    /* design, How a view is formed, 3 and 4; Leases 3: how long is to be waited for, from now. */
    :: STEP {
        GO_ON && certified < newest && endorsed[me] != newest && !HAS(gone, me) &&
        HAS(voters[newest] | voters[newest - 1], me) ->
        endorsed[me] = newest;
        if
        :: !HAS(voters[newest - 1], me) -> begin(me)
        :: else
        fi;
        if
        :: holds[newest] -> wait[me] = 0
        :: else -> wait[me] = LESS(W(longest[me]), since[me])
        fi;
        printf("# voter %d endorses view %d: wait for %d\n", me, newest, wait[me]);
        if
        :: FROM_BOTH(EACH(ENDORSED)) -> certified = newest; count_answers()
        :: else
        fi
    }
    /* doc/faults.md, 21: it takes any lease to have been renewed by it until its restart. */
    :: atomic {
        RESTARTS && GO_ON &&
        (since[me] != 0 || since_longest[me] != 0 || FORGETS(me) || (me == 0 && runs)) ->
#ifdef WITHOUT_RESTARTS_COUNTING
        start_again(me);
        since[me] = LONG_AGO;
#else
        start_again(me);
#endif
#ifdef WITHOUT_WRITING_LONGEST
        longest[me] = written[me];
#endif
#ifdef WITHOUT_LONGEST
        /* As it was: a voter knew the lease of its file alone. */
        if :: longest[me] = 1 :: longest[me] = 2 :: longest[me] = LENGTHS fi;
#endif
        printf("# host %d restarts\n", me)
    }
    :: STEP {
        GO_ON && losses < LOSSES && !HAS(gone, me) ->
        losses++;
        gone = gone | BIT(me); blank = blank | BIT(me);
        taught = taught & ~BIT(me);
        endorsed[me] = NONE; longest[me] = 0; next[me] = 0; wait[me] = 0;
        start_again(me);
        printf("# host %d loses its state\n", me)
    }
    od
}

inline any_host() {
    if :: v = 0 :: v = 1 :: v = 2 fi
}

/* ---- Views ---- */

/* Leases 4. */
#ifdef WITHOUT_INSTALLED_PARENT
#define PARENT_INSTALLED true
#else
#define PARENT_INSTALLED (in_force == newest - 1)
#endif
#ifdef WITHOUT_RENEWED_PARENT
#define PARENT_RENEWED   true
#else
#define PARENT_RENEWED   (!holds[newest - 1] || lease_epoch == newest - 1)
#endif

/* Leases 5. Any voter may lead. */
#define LEADS(h)        (h != v && HAS(voters[newest - 1] & ~gone, h))

active proctype coordinator() {
    do
    /* design, How a view is formed, 1 and 2. Suspicion may be wrong at any time. */
    :: atomic {
        GO_ON && newest < EPOCHS && certified == newest ->
        newest++;
        voters[newest] = voters[newest - 1];
        wait[0] = 0; wait[1] = 0; wait[2] = 0;
        of_leader = 0;
        if
        :: holds[newest - 1] -> holds[newest] = true
        :: holds[newest] = false
        fi;
#ifdef VOTERS_CHANGE
        if
        :: true
        :: PARENT_INSTALLED && PARENT_RENEWED ->
#ifdef WITHOUT_ONE_VOTER_AT_A_TIME
           select(v: 1 .. 7);
           voters[newest] = v;
           v = 3;
#else
           any_host();
#endif
           if
           :: HAS(voters[newest], v) && voters[newest] != BIT(v) ->
              voters[newest] = voters[newest] & ~BIT(v)
           :: v < 3 && !HAS(voters[newest], v) ->
              voters[newest] = voters[newest] | BIT(v);
              /* distlock(7), State on disk: one that is gone votes again, as another voter. */
              gone = gone & ~BIT(v); blank = blank & ~BIT(v);
              if
              :: LEADS(0) -> of_leader = longest[0]
              :: LEADS(1) -> of_leader = longest[1]
              :: LEADS(2) -> of_leader = longest[2]
              fi
           :: else
           fi;
           v = 0
        fi;
#endif
        printf("# view %d is proposed: voters %d (bits), the holder in it: %d\n",
               newest, voters[newest], holds[newest])
    }
    /* design, How a view is formed, 6 and 7: all members have reported, and the waits of the
       endorsements of a certificate are over. A lock that the one that is left out may hold is in
       quarantine before: in force is a view here when that is lifted, and only then may a voter
       come or go. */
    :: STEP {
        GO_ON && certified == newest && in_force < newest && FROM_BOTH(EACH(WAITED)) &&
        (!holds[newest] || runs) ->
        if
        :: newest < EPOCHS || !holds[newest] -> in_force = newest
        :: else                 /* nothing comes of it any more */
        fi;
        another = !holds[newest];
        printf("# view %d is in force\n", newest)
    }
    od
}

/* ---- The operator, and founding ---- */

#if LOSSES > 0 && !defined(NO_OPERATOR)

#ifdef WITHOUT_FOUNDING_WAIT
#define UP_FOR(set, t) true
#else
#define UP(h)          (!HAS(listed, h) || since[h] >= by)
#define UP_FOR(set, t) (UP(0) && UP(1) && UP(2))
#endif
#define KEPT(h)        (HAS(listed, h) * longest[h])

active proctype operator() {
    do
    /* Founding 12. */
    :: atomic {
        GO_ON && !MOST(ALL & ~gone, voters[certified]) ->
        any_host();
        if
        :: !HAS(permits, v) ->
           permits = permits | BIT(v);
           recalls = recalls | (longest[v] >= length -> BIT(v) : taught & BIT(v));
           gone = gone | BIT(v); endorsed[v] = NONE; next[v] = 0; wait[v] = 0;
#ifdef WITHOUT_RECOVER_KEEPING
           longest[v] = 0;
#endif
           start_again(v);
           printf("# the operator says recover at host %d\n", v)
        :: else
        fi;
        v = 0
    }
    /* Founding 13, with permits, at any of those that have one: they are the voters of a file. */
    :: atomic {
        GO_ON && permits != 0 ->
        if
        :: listed = 1 :: listed = 2 :: listed = 3 :: listed = 4 :: listed = 5 :: listed = 6
        :: listed = 7
        fi;
        select(file: 1 .. LENGTHS);
        by = MAX(MAX(file, KEPT(0)), MAX(KEPT(1), KEPT(2)));
        if
#ifdef WITH_ALL_FORGOTTEN
        :: (listed & ~permits) == 0 ->
#else
        /* doc/fail-closed.md, Cannot: no state that remembers, and a shorter lease in the files. */
        :: (listed & ~permits) == 0 && (file >= length || (recalls & listed) != 0) ->
#endif
           by = W(by);
           if
           :: UP_FOR(listed, by) -> another = true;
              printf("# hosts %d (bits) found the group anew\n", listed)
           :: else
           fi
        :: else
        fi;
        listed = 0; file = 0; by = 0
    }
    /* Founding 2 and 13, without a permit: all that the file lists are new. That may be all but one
       half of the voters. */
    :: atomic {
        GO_ON && blank != 0 && 2 * COUNT(voters[certified] & ~blank) <= COUNT(voters[certified]) ->
        listed = blank;
        select(file: 1 .. LENGTHS);
        by = W(file);
        if
#ifdef WITH_ALL_FORGOTTEN
        :: UP_FOR(listed, by) ->
#else
        :: file >= length && UP_FOR(listed, by) ->
#endif
           another = true; printf("# hosts %d (bits) found a group\n", listed)
        :: else
        fi;
        listed = 0; file = 0; by = 0
    }
    od
}

#endif

/* ---- Time ---- */

#ifdef ANY_RATE
#define PASSES if :: by = 1 :: by = 2 fi
#else
#define PASSES by = 2
#endif

inline pass(h) {
    if
    :: COUNTS_TIME(h) -> since[h] = MIN(LONG_AGO, since[h] + by);
       since_longest[h] = MIN(LONG_AGO, since_longest[h] + by)
    :: else -> since[h] = LONG_AGO; since_longest[h] = LONG_AGO
    fi
}

active proctype clocks() {
    do
    :: TICK {
        ready && (runs || lease > 0) ->
#ifdef WITHOUT_BOOTTIME
        /* The holder's host is suspended, and its clock stands still. */
        if :: true :: lease = LESS(lease, 1); asked = LESS(asked, 1) fi;
#else
        lease = LESS(lease, 1); asked = LESS(asked, 1);
#endif
        if
        :: asked == 0 -> renewed = 0; asked_epoch = 0
        :: else
        fi;
        by = 1; pass(0);
        PASSES; pass(1);
        PASSES; pass(2);
        PASSES;
        wait[0] = LESS(wait[0], by); wait[1] = LESS(wait[1], by); wait[2] = LESS(wait[2], by);
        by = 0;
        printf("# time passes: %d are left of the holder's lease\n", lease)
    }
    od
}

active proctype judge() {
    do
    :: d_step { TWO_INSIDE -> printf("# two inside\n"); assert(false) }
    od
}
