/*
 * Vouching: a lock does not wait for the lease of a member that was left out where another member
 * knows that it is not inside, and the next holder is told of every holder that died inside. Where
 * nobody knows, the lock is in quarantine until that lease is over, whatever views come meanwhile.
 *
 * A lock with a token, which stands for all that shows who may be inside. Members miss views, are
 * left out, and end inside. A lease is only known to run or to be over; how long is waited for it
 * is in leases.pml.
 *
 * Written from the documents, and not from the code: "design" is doc/design.md, "Vouching N" rule N
 * of its "Who vouches".
 */

/* ---- Bounds ---- */

#ifndef EPOCHS
#define EPOCHS   3              /* the newest view; the first is 0 */
#endif

#ifndef JUDGED
#define JUDGED   3              /* 1: two inside, 2: what a holder is told; or both */
#endif

#define BIT(h)          (1 << (h))
#define HAS(set, h)     (((set) >> (h)) & 1)
#define LOWEST(set)     (HAS(set, 0) -> 0 : (HAS(set, 1) -> 1 : 2))
#define ON_THE_WAY      3
#define UNUSED          4

/* ---- State ---- */

byte newest;                    /* certified */
bool in_force[EPOCHS + 1];
byte members[EPOCHS + 1];
byte token[EPOCHS + 1];         /* where that view's is; or UNUSED: nobody has used the lock in it */
bool tell[EPOCHS + 1];          /* the next holder in that view: the former one ended inside */
bool quarantined[EPOCHS + 1];   /* the lock, in that view, as far as its coordinator knows */

byte installed[3];              /* the newest view that each member knows to be in force */
byte served = 7;                /* members to which the lock is not in quarantine in the view they know */
byte stopped;                   /* members that grant nothing until the next view is in force */
byte reported;                  /* those of them that have told the newest view's coordinator all */
byte vouching;                  /* those of them that vouch */
byte known;                     /* members that know of the lock */
bool named;                     /* one of them has reported it */
byte inside;                    /* members that hold the lock, as they see it */
byte dead;
byte over;                      /* whose leases are over */
bool unfinished;                /* a holder has ended inside, and nobody was told yet */
bool tells;                     /* somebody reported that the next holder has yet to be told */
byte holder;                    /* where a holder is, as reported; or ON_THE_WAY */

#define VALID           (inside & ~over & ~dead)
/* distlock(7), What is promised. */
#define TWO_INSIDE      ((VALID & (VALID - 1)) != 0)
#define STOPPED(h)      HAS(stopped, h)
#define LEFT_OUT        (7 & ~members[newest])

/* Vouching 1, 2 and 4. The token shows what a member knows of all others. */
#ifdef WITHOUT_MISSED_VIEWS_COUNTING
#define KNOWS(h)        true
#else
#define KNOWS(h)        (installed[h] == newest - 1)
#endif
#ifdef WITHOUT_QUARANTINES_GOING_ON
#define SERVED(h)       true
#else
#define SERVED(h)       HAS(served, h)
#endif
/* Vouching 3: the lowest member of a view knows all locks, so that nobody uses one that it does not
   know. */
#define DECLARES(h)     (LOWEST(members[installed[h]]) == h)
#define VOUCHES(h)      (KNOWS(h) && SERVED(h) && \
                        (token[installed[h]] == h || (DECLARES(h) && !HAS(known, h))))
#ifdef WITHOUT_DECLARING
#define MAY_BEGIN(h)    true
#else
#define MAY_BEGIN(h)    DECLARES(h)
#endif

/* design, How a view is formed, 6 and 7; distlock(7), A process crashes. */
#ifdef WITHOUT_WAIT
#define WAITED_FOR      true
#else
#define WAITED_FOR      ((LEFT_OUT & ~over) == 0)
#endif

#ifdef WITHOUT_UNNAMED_IN_QUARANTINE
#define FREE_UNNAMED    (!named)
#else
#define FREE_UNNAMED    false
#endif

active proctype start() {
    d_step { members[0] = 7; in_force[0] = true; token[0] = UNUSED; holder = ON_THE_WAY }
}

#define me (_pid - 1)
#define LIVES (!HAS(dead | over, me) && in_force[0])

active [3] proctype member() {
    do
    /* The lock, as it is granted in the view that the member knows. */
    :: atomic {
        LIVES && token[installed[me]] == me && HAS(served, me) && !STOPPED(me) && !HAS(inside, me) ->
        printf("# %d enters, in view %d\n", me, installed[me]);
        inside = inside | BIT(me);
#if JUDGED & 2
        if
        /* distlock(7), A process crashes: the next holder is told. */
        :: unfinished && !tell[installed[me]] -> printf("# nobody was told\n"); assert(false)
        :: else
        fi;
#endif
        tell[installed[me]] = false;
        unfinished = false
    }
    /* Vouching 3: how the lock is served, when somebody asks for it first. */
    :: atomic {
        LIVES && token[installed[me]] == UNUSED && MAY_BEGIN(me) && HAS(served, me) && !STOPPED(me) ->
        printf("# %d begins with the lock, in view %d\n", me, installed[me]);
        token[installed[me]] = me;
        known = known | BIT(me)
    }
    :: atomic {
        LIVES && HAS(inside, me) ->
        printf("# %d leaves\n", me);
        inside = inside & ~BIT(me)
    }
    :: atomic {
        LIVES && token[installed[me]] == me && HAS(served, me) && !HAS(inside, me) && !STOPPED(me) ->
        printf("# %d sends the token of view %d\n", me, installed[me]);
        token[installed[me]] = ON_THE_WAY
    }
    :: atomic {
        LIVES && token[installed[me]] == ON_THE_WAY && !STOPPED(me) ->
        printf("# %d has the token of view %d\n", me, installed[me]);
        token[installed[me]] = me;
        known = known | BIT(me);
        served = served | BIT(me)                   /* Vouching 5 */
    }
    :: atomic {
        LIVES && !HAS(served, me) && !quarantined[installed[me]] && !STOPPED(me) ->
        printf("# %d hears that the quarantine of view %d is lifted\n", me, installed[me]);
        served = served | BIT(me)
    }
    /* design, How a view is formed, 5. */
    :: atomic {
        LIVES && HAS(members[newest], me) && installed[me] < newest && !in_force[newest] &&
        !HAS(reported, me) ->
        printf("# %d stops for view %d; vouches: %d\n", me, newest, VOUCHES(me));
        if
        :: VOUCHES(me) ->
           vouching = vouching | BIT(me);
#ifndef WITHOUT_TELLING_ON
           tells = tells || tell[installed[me]]     /* Vouching 6 */
#endif
        :: else
        fi;
        if
        :: HAS(inside, me) -> holder = me
        :: else
        fi;
        named = named || HAS(known, me);
#ifndef WITHOUT_STOPPING
        stopped = stopped | BIT(me);
#endif
        reported = reported | BIT(me)
    }
    :: atomic {
        LIVES && HAS(members[newest], me) && installed[me] < newest && in_force[newest] ->
        printf("# %d hears that view %d is in force\n", me, newest);
        installed[me] = newest;
        if
        :: quarantined[newest] -> served = served & ~BIT(me)
        :: else -> served = served | BIT(me)
        fi;
        if
        :: token[newest] != UNUSED -> known = known | BIT(me)
        :: else
        fi;
        stopped = stopped & ~BIT(me)
    }
    :: atomic {
        LIVES ->
        printf("# %d dies; inside: %d\n", me, HAS(inside, me));
        dead = dead | BIT(me);
        unfinished = unfinished || HAS(inside, me);
        inside = inside & ~BIT(me)
    }
    /* The lease of a member that is left out ends: it has lost what it held. */
    :: atomic {
        !HAS(over, me) && HAS(LEFT_OUT, me) && in_force[0] ->
        printf("# the lease of %d is over\n", me);
        over = over | BIT(me);
        unfinished = unfinished || HAS(inside, me);
        inside = inside & ~BIT(me)
    }
    od
}

active proctype coordinator() {
    byte out;
    do
    /* design, How a view is formed, 1 to 4: whoever is suspected, rightly or not, is left out. */
    :: atomic {
        in_force[0] && newest < EPOCHS ->
        newest++;
        if
        :: members[newest] = members[newest - 1]
        :: select(out: 0 .. 2);
           members[newest] = members[newest - 1] & ~BIT(out);
           out = 0
        fi;
        reported = 0; vouching = 0; named = false; tells = false; holder = ON_THE_WAY;
        printf("# view %d is certified: members %d (bits)\n", newest, members[newest])
    }
    /* 6. Vouching 6 for what is told, 3 for a lock that no report names. */
    :: atomic {
        !in_force[newest] && members[newest] != 0 &&
        (reported & members[newest]) == members[newest] ->
        in_force[newest] = true;
        quarantined[newest] = !(WAITED_FOR || vouching != 0 || FREE_UNNAMED);
        token[newest] = (holder != ON_THE_WAY -> holder :
                        (named -> LOWEST(members[newest]) : UNUSED));
        tell[newest] = (vouching == 0 || tells);
        printf("# view %d is in force; in quarantine: %d; the next holder is told: %d\n", newest,
            quarantined[newest], tell[newest])
    }
    /* 7. */
    :: atomic {
        in_force[newest] && quarantined[newest] && WAITED_FOR ->
        printf("# the quarantine of view %d is lifted\n", newest);
        quarantined[newest] = false
    }
    od
}

active proctype judge() {
    do
    :: d_step { (JUDGED & 1) && TWO_INSIDE -> printf("# two inside\n"); assert(false) }
    od
}
