/*
 * Views: an epoch never has two certified views, whatever the log decides that orders proposals.
 *
 * Three hosts. In each epoch two views are proposed, A and B, by logs that lie: after any
 * parent, with any voters that the rules allow. Voters endorse in any order, and restart.
 *
 * Written from the documents, and not from the code: "design" is doc/design.md.
 */

/* ---- Bounds ---- */

#ifndef EPOCHS
#define EPOCHS   3              /* the newest view; the first is 0 */
#endif

#define BIT(h)          (1 << (h))
#define HAS(set, h)     (((set) >> (h)) & 1)
#define COUNT(set)      (HAS(set, 0) + HAS(set, 1) + HAS(set, 2))
#define MOST(some, all) (2 * COUNT((some) & (all)) > COUNT(all))

/* ---- State: view A of epoch e is 2 e, view B is 2 e + 1 ---- */

#define VIEWS           (2 * EPOCHS + 2)
#define EPOCH(view)     ((view) / 2)
#define BEFORE(view)    (2 * (EPOCH(view) - 1))
byte parent[VIEWS];
byte voters[VIEWS];             /* none: not proposed */
byte endorsers[VIEWS];
bool certified[VIEWS];
byte endorsed[3];               /* the newest view that each voter has endorsed: on disk */
byte p, view, set;

/* distlock(7), Membership of a group: an epoch never has two views. */
#define TWO_VIEWS(e)    (certified[2 * (e)] && certified[2 * (e) + 1])

/* doc/faults.md, 27: one voter comes or goes at a time. Nothing here depends on it, since a
   certificate has both majorities; leases do (leases.pml). */
#define NEIGHBOURS(a, b) (COUNT((a) ^ (b)) <= 1)

/* design, How a view is formed, 3: one view an epoch, and after a parent that is known to be
   certified. */
#ifdef WITHOUT_ONE_ENDORSEMENT
#define LATER(h, view)  (EPOCH(view) >= EPOCH(endorsed[h]))
#else
#define LATER(h, view)  (EPOCH(view) > EPOCH(endorsed[h]))
#endif
#define MAY_ENDORSE(h, view) (voters[view] != 0 && certified[parent[view]] && LATER(h, view) && \
                              HAS(voters[view] | voters[parent[view]], h) && \
                              !HAS(endorsers[view], h))

/* design, How a view is formed, 4. */
#ifdef WITHOUT_BOTH_MAJORITIES
#define CERTIFIES(view) MOST(endorsers[view], voters[view])
#else
#define CERTIFIES(view) (MOST(endorsers[view], voters[view]) && \
                         MOST(endorsers[view], voters[parent[view]]))
#endif

active proctype log() {
    d_step { voters[0] = 7; certified[0] = true }
    do
    :: atomic {
        select(view: 2 .. VIEWS - 1);
        select(p: 0 .. 1);
        select(set: 1 .. 7);
        if
        :: voters[view] == 0 && voters[BEFORE(view) + p] != 0 &&
           NEIGHBOURS(set, voters[BEFORE(view) + p]) ->
           parent[view] = BEFORE(view) + p;
           voters[view] = set;
           printf("# view %d%c is proposed, after %d%c: voters %d (bits)\n",
                  EPOCH(view), 65 + view % 2, EPOCH(parent[view]), 65 + p, set)
        :: else
        fi;
        view = 0; p = 0; set = 0
    }
    od
}

#define me (_pid - 1)

inline endorse(h, w) {
    endorsers[w] = endorsers[w] | BIT(h);
    endorsed[h] = w;
    certified[w] = certified[w] || CERTIFIES(w);
    printf("# voter %d endorses view %d%c; certified: %d\n", h, EPOCH(w), 65 + w % 2, certified[w])
}

active [3] proctype voter() {
    byte w;
    do
    :: atomic {
        select(w: 2 .. VIEWS - 1);
        if
        :: MAY_ENDORSE(me, w) -> endorse(me, w)
        :: else
        fi;
        w = 0
    }
#ifdef WITHOUT_DISK
    :: atomic { endorsed[me] != 0 -> endorsed[me] = 0; printf("# voter %d restarts\n", me) }
#endif
    od
}

active proctype judge() {
    do
    :: d_step {
        TWO_VIEWS(1) || (EPOCHS >= 2 && TWO_VIEWS(2)) || (EPOCHS >= 3 && TWO_VIEWS(EPOCHS)) ->
        printf("# an epoch has two certified views\n"); assert(false)
    }
    od
}
