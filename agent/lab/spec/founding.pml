/*
 * Founding: two clusters of one group never both decide, and no group is stuck for want of a rule.
 *
 * Three hosts, whose files list other members and other voters after each restart. A host may lose
 * its state; voters change; an operator abandons a cluster. Messages are lost, late and repeated:
 * whatever was once said of a founding may be heard at any later time. There is no time here; the
 * wait before the first grant is in leases.pml.
 *
 * Once all is healed the hosts know less: each knows what the others, which are all alive, still have
 * on their disks, and only of those that it hears. What it remembered before, it acted on before, or
 * it has been restarted since.
 *
 * Written from the documents, and not from the code. "Founding N" is rule N of "How a cluster is
 * founded" in doc/design.md.
 */

/* ---- Bounds ---- */

#ifndef LOSSES
#define LOSSES   2              /* states that are lost */
#endif
#ifndef CHANGES
#define CHANGES  1              /* changes of voters after the founding */
#endif
#ifndef REFUSALS
#define REFUSALS 1              /* voters that refuse though nothing forces them to */
#endif
#define FOUNDINGS 2             /* before all is healed; then one more */

#define BIT(h)         (1 << (h))
#define HAS(set, h)    (((set) >> (h)) & 1)
#define COUNT(set)     (HAS(set, 0) + HAS(set, 1) + HAS(set, 2))
#define MOST(some, all) (2 * COUNT((some) & (all)) > COUNT(all))
#define EACH(p, c)     (p(c, 0) | (p(c, 1) << 1) | (p(c, 2) << 2))
#define LOWEST(set)    (HAS(set, 0) -> 0 : (HAS(set, 1) -> 1 : 2))
#define NONE           7

/*
 * The files that an operator may give to a host: the members that a file lists, and its voters, a
 * bit for each host. Files 0 and 1 differ in the voters alone, which have nobody in common; 3 and 4
 * leave hosts out.
 */
#define LISTED(file)   (file <= 2 -> 7 : (file == 3 -> 6 : 1))
#define VOTING(file)   (file == 0 -> 1 : (file == 1 -> 6 : (file == 2 -> 7 : (file == 3 -> 6 : 1))))

/* ---- State ---- */

/* On the disk of each host: Founding, "On disk". */
mtype = { NEW, ACCEPTED, COMPLETE, MEMBER };
mtype stage[3] = NEW;
byte cluster[3];                /* which founding, unless it is new */
byte birth[3];
byte turn[3];
byte record[3];                 /* the voters, of a member */
byte permit[3] = NONE;          /* the cluster that an operator abandoned here */
byte named[3];                  /* the voters to whom that was said, by the file of that time */

/* A founding, and all that was ever said of it. */
typedef Founding {
    bool made;
    byte listed, voters;
    byte births[3], turns[3];   /* as the founding names them */
    byte since[3];              /* births of those that vote, as views have changed them */
    byte abandons = NONE;
    byte heirs;                 /* the voters that the word named by which this one was abandoned */
    byte accepted, completed, refused;
    byte sure;                  /* completed, and knows of the new births of all others */
    bool live;
    byte now;                   /* the voters since then, as views have changed them */
}
Founding F[FOUNDINGS + 1];

byte losses, changes, refusals;
byte recovered;                 /* the hosts at which the operator has said recover, each once */
bool over;                      /* nothing more is looked at */
byte file, h, c, n;
bool moved, newest_first;
byte rounds;

/* ---- What follows from it ---- */

#define REBORN(c, h)    (birth[h] != F[c].births[h])
#define ANOTHER(c, h) (birth[h] != F[c].since[h])
#define REMEMBERS(c, h) (cluster[h] == c && (stage[h] == COMPLETE || stage[h] == MEMBER) && \
                    !ANOTHER(c, h))
#define ELSEWHERE(c, h) (stage[h] == MEMBER && cluster[h] != c)
/* A cluster decides on views as long as a majority of its voters remembers it:
   distlock(7), Membership of a group. */
#define DECIDES(c)      (F[c].live && MOST(EACH(REMEMBERS, c), F[c].now))
/* distlock(7), What is promised: one holder at a time. */
#define TWO_CLUSTERS    (DECIDES(0) && DECIDES(1))

/* ---- Rules ---- */

/* Founding 12: a permit counts for the voters that it names. */
#ifdef WITHOUT_NAMED_VOTERS
#define IS_FOR(h, some) true
#else
#define IS_FOR(h, some) (permit[h] == NONE || named[h] == (some))
#endif

/* Founding 4, and 12 for permits. Whether it hears of another cluster is looked at once all is healed;
   before, what it would have heard may be lost. */
#ifdef WITHOUT_TURNS
#define SAME_TURN(h, c) true
#else
#define SAME_TURN(h, c) (F[c].turns[h] == turn[h])
#endif
#define MAY_ACCEPT(h, c) (F[c].made && stage[h] == NEW && HAS(F[c].listed, h) && !REBORN(c, h) && \
                          SAME_TURN(h, c) && permit[h] == F[c].abandons && \
                          IS_FOR(h, F[c].voters))
inline accept(h, c) {
    stage[h] = ACCEPTED; cluster[h] = c; permit[h] = NONE; named[h] = 0;
    F[c].accepted = F[c].accepted | BIT(h);
    printf("# host %d accepts %d\n", h, c)
}

/* Founding 2 and 3. What a host said of itself when it was new may be heard at any later time, so
   the founder may take any host to be new; what counts is who accepts. The file is the founder's:
   a host may be started with any file before. */
#define MAY_FOUND(h, file) (stage[h] == NEW && h == LOWEST(VOTING(file)) && IS_FOR(h, VOTING(file)))
inline found(h, c, file) {
    F[c].made = true; F[c].accepted = 0; F[c].completed = 0; F[c].sure = 0;
    F[c].voters = VOTING(file);
    if
    :: permit[h] == NONE -> F[c].listed = LISTED(file)
    /* Founding 12: with permits the voters alone accept. */
    :: permit[h] != NONE -> F[c].listed = VOTING(file)
    fi;
    F[c].abandons = permit[h];
    F[c].births[0] = birth[0]; F[c].births[1] = birth[1]; F[c].births[2] = birth[2];
    F[c].since[0] = birth[0]; F[c].since[1] = birth[1]; F[c].since[2] = birth[2];
    F[c].turns[0] = turn[0]; F[c].turns[1] = turn[1]; F[c].turns[2] = turn[2];
    F[c].refused = EACH(ELSEWHERE, c) & F[c].voters;
    printf("# host %d founds %d: members %d, voters %d (bits)\n", h, c, F[c].listed, F[c].voters);
#ifdef WITHOUT_FOUNDERS_ACCEPTING
    if
    :: c == FOUNDINGS -> accept(h, c)       /* it loses nothing any more, and goes on */
    :: else
    fi
#else
    accept(h, c)
#endif
}

/* Founding 6. `live` is true as soon as a host that has heard everything can know it. */
#define DONE(c, h)  (HAS(F[c].completed, h) || REBORN(c, h) || !HAS(F[c].voters, h))
#ifdef WITHOUT_KNOWING_OF_NEW_BIRTHS
/* A weaker rule: whoever has completed it counts, also who may have given it up since. */
#define SURE(c)     F[c].completed
#else
#define SURE(c)     F[c].sure
#endif
#define STANDS_FAST(c, h) (HAS(SURE(c), h) || REBORN(c, h) || !HAS(F[c].voters, h))
#define IS_LIVE(c)  (F[c].made && (F[c].completed == F[c].voters || (MOST(SURE(c), F[c].voters) && \
                     STANDS_FAST(c, 0) && STANDS_FAST(c, 1) && STANDS_FAST(c, 2))))
#define MAY_BE_SURE(h) (stage[h] == COMPLETE && !HAS(F[cluster[h]].sure, h) && \
                    F[cluster[h]].completed != F[cluster[h]].voters && \
                        DONE(cluster[h], 0) && DONE(cluster[h], 1) && DONE(cluster[h], 2))
inline be_sure(h) {
    printf("# host %d knows that all other voters have new births\n", h);
    F[cluster[h]].sure = F[cluster[h]].sure | BIT(h);
    look_whether_live(cluster[h])
}
#define MAY_GO_LIVE(h) ((stage[h] == COMPLETE || stage[h] == ACCEPTED) && F[cluster[h]].live)
inline go_live(h) {
    printf("# host %d knows that %d is live\n", h, cluster[h]);
    stage[h] = MEMBER; record[h] = F[cluster[h]].now;
    show_cluster(h)
}

/* doc/fail-closed.md, Cannot: a file leaves out a majority of the present voters. What comes of it
   is not looked at unless it is asked for. */
#if defined(WITH_VOTERS_LEFT_OUT) || defined(RECOVERED)
#define LEFT_OUT    false
#elif defined(HEALED)
/* Half of them suffices for the members of the first cluster to stay out, and to say so. */
#define LEFT_OUT    (F[0].live && F[1].live && F[1].abandons != 0 && \
                    !MOST(F[0].now & F[1].listed, F[0].now))
#else
#define LEFT_OUT    (F[0].live && F[1].live && F[1].abandons != 0 && \
                    MOST(F[0].now & ~F[1].listed, F[0].now))
#endif
inline look_whether_live(c) {
    if
    :: !F[c].live && IS_LIVE(c) ->
       printf("# %d is live\n", c);
       F[c].live = true; F[c].now = F[c].voters;
       over = LEFT_OUT
    :: else
    fi
}

/* Founding 5. */
#if defined(WITHOUT_MEMBERS)
/* As it was: the voters of the file sufficed. */
#define ALL_ACCEPTED(c) ((F[c].accepted & F[c].voters) == F[c].voters)
#elif defined(WITHOUT_ALL_MEMBERS)
/* A weaker rule: the voters, and more than half of the listed members. */
#define ALL_ACCEPTED(c) ((F[c].accepted & F[c].voters) == F[c].voters && \
                    MOST(F[c].accepted, F[c].listed))
#else
#define ALL_ACCEPTED(c) (F[c].accepted == F[c].listed)
#endif
#define MAY_COMPLETE(h) (stage[h] == ACCEPTED && HAS(F[cluster[h]].voters, h) && \
                    ALL_ACCEPTED(cluster[h]))
inline complete(h) {
    stage[h] = COMPLETE;
    F[cluster[h]].completed = F[cluster[h]].completed | BIT(h);
    printf("# host %d completes %d\n", h, cluster[h]);
    look_whether_live(cluster[h])
}

/* Founding 7: a voter refuses. One that is new does so where its file has a longer lease than the
   founding, and that may be any: there are no leases here before all is healed. */
inline show_turn(h, c) {
    if
    :: F[c].made && HAS(F[c].voters, h) && !REBORN(c, h) -> F[c].refused = F[c].refused | BIT(h)
    :: else
    fi
}
inline begin_anew(h) {
#ifndef WITHOUT_TURNS
    turn[h]++;
    show_turn(h, 0); show_turn(h, 1); show_turn(h, 2);
#endif
    stage[h] = NEW; cluster[h] = 0
}
#define MAY_REFUSE_AT_ONCE(h, c) (MAY_ACCEPT(h, c) && HAS(F[c].voters, h))
inline refuse_at_once(h, c) {
    printf("# host %d has a longer lease, and refuses %d at once\n", h, c);
    begin_anew(h)
}
#define MAY_REFUSE(h) (stage[h] == ACCEPTED && HAS(F[cluster[h]].voters, h))
inline refuse(h) {
    printf("# host %d refuses %d\n", h, cluster[h]);
    begin_anew(h)
}

/* Founding 8: a member of another cluster answers an offer, which counts as a higher turn. */
inline show_cluster(h) {
    if :: cluster[h] != 0 -> show_turn(h, 0) :: else fi;
    if :: cluster[h] != 1 -> show_turn(h, 1) :: else fi;
    if :: cluster[h] != 2 -> show_turn(h, 2) :: else fi
}

/* Founding 8: the others give up. Only the turn shows that a voter has refused. Whoever has heard the
   new birth of a voter does not hear the former turn of that one any more. */
#ifdef WITHOUT_TURNS
#define REFUSED(c)  0
#else
#define REFUSED(c)  F[c].refused
#endif
#define OUT(c, h)   (HAS(REFUSED(c), h) || REBORN(c, h) || !HAS(F[c].voters, h))
#define FORMER(c, h) (HAS(F[c].sure, h) -> EACH(REBORN, c) : 0)
#define WAITS(h)    (stage[h] == ACCEPTED || stage[h] == COMPLETE)
#define MAY_GIVE_UP(h) (WAITS(h) && ((REFUSED(cluster[h]) & ~FORMER(cluster[h], h)) != 0 || \
                        (!HAS(F[cluster[h]].voters, h) && \
                         OUT(cluster[h], 0) && OUT(cluster[h], 1) && OUT(cluster[h], 2))))
inline give_up(h) {
    printf("# host %d gives %d up\n", h, cluster[h]);
    begin_anew(h)
}

/* Founding 9: who joins writes so before it is in a view. */
#ifdef WITHOUT_JOINING_FROM_ACCEPTED
#define ONLY_ACCEPTED(h, c) false
#else
#define ONLY_ACCEPTED(h, c) (stage[h] == ACCEPTED && cluster[h] != c && \
                    !HAS(F[cluster[h]].voters, h))
#endif
#define MAY_JOIN(h, c) (DECIDES(c) && ((stage[h] == NEW && permit[h] != c) || ONLY_ACCEPTED(h, c)))
inline join(h, c) {
    printf("# host %d joins %d\n", h, c);
    stage[h] = MEMBER; cluster[h] = c; record[h] = F[c].now; permit[h] = NONE; named[h] = 0;
    show_cluster(h)
}

/* Founding 11: who follows another cluster. */
#define REPLACED(c, h)  (cluster[h] != c && stage[h] == MEMBER && ANOTHER(c, h))
#ifdef WITHOUT_FOLLOWING
#define MOST_REPLACED(h) false
#else
#define MOST_REPLACED(h) MOST(EACH(REPLACED, cluster[h]), record[h])
#endif
#define MAY_FOLLOW(h, d) (stage[h] == MEMBER && cluster[h] != d && F[d].live && \
                          (F[d].abandons == cluster[h] || MOST_REPLACED(h)))
inline follow(h, d) {
    printf("# host %d follows from %d to %d\n", h, cluster[h], d);
    cluster[h] = d; record[h] = F[d].now;
    show_cluster(h)
}

inline lose(h) {
    printf("# host %d loses its state\n", h);
    birth[h]++; turn[h] = 0; permit[h] = NONE; named[h] = 0;
    stage[h] = NEW; cluster[h] = 0; record[h] = 0;
#ifdef WITHOUT_KNOWING_OF_NEW_BIRTHS
    look_whether_live(0);
    look_whether_live(1)
#endif
}

/* Founding 12. An operator says so where no majority remembers; doc/fail-closed.md has the case
   that a majority does, under "Cannot". */
#ifdef WITH_RECOVER_TOO_EARLY
#define GIVEN_UP(c) F[c].live
#define OPEN(c, h)  false
#else
#define KEPT(c, h)  (!ANOTHER(c, h))
#define GIVEN_UP(c) (F[c].live && !MOST(EACH(KEPT, c), F[c].now))
#if defined(WITH_RECOVER_DURING_A_FOUNDING)
#define OPEN(c, h)  false
#elif defined(HEALED)
/* With its birth a host loses its turn, which shows that it has refused: another has to have. */
#define OPEN(c, h)  (F[c].made && !F[c].live && (F[c].refused & ~BIT(h) & ~EACH(REBORN, c)) == 0)
#else
#define OPEN(c, h)  (F[c].made && !F[c].live && F[c].refused == 0)
#endif
#endif
#define MAY_RECOVER(h, c) (GIVEN_UP(c) && !OPEN(1 - c, h) && !HAS(recovered, h) && \
                    (stage[h] == NEW || cluster[h] == c))
/* A word that was said at hosts with other voters in their files asks for two clusters. What becomes of
   that once all is healed is not looked at. */
#ifdef HEALED
#define SAME_WORD(c)    (F[c].heirs == 0 || F[c].heirs == VOTING(file))
#else
#define SAME_WORD(c)    true
#endif
inline recover(h, c) {
    if
    :: SAME_WORD(c) -> say_recover(h, c)
    :: else
    fi;
    file = 0
}
inline say_recover(h, c) {
#ifdef HEALED
    F[c].heirs = VOTING(file);
#endif
    printf("# the operator says recover at host %d: %d is abandoned\n", h, c);
    recovered = recovered | BIT(h);
    birth[h]++; turn[h] = 0; permit[h] = c; named[h] = VOTING(file);
    stage[h] = NEW; cluster[h] = 0; record[h] = 0
}

/* distlock(7), Membership of a group: a view takes one voter in or out, and needs a majority of
   the voters before and after it. Those that vote know of it. */
#define WITH_ONE(set, h)    (HAS(set, h) -> (set) & ~BIT(h) : (set) | BIT(h))
#define MAY_CHANGE(c, h)    (DECIDES(c) && F[c].now != BIT(h) && \
                             (HAS(F[c].now, h) -> MOST(EACH(REMEMBERS, c), F[c].now & ~BIT(h)) \
                                               : stage[h] == MEMBER && cluster[h] == c))
inline change(c, h) {
    F[c].now = WITH_ONE(F[c].now, h);
    F[c].since[h] = birth[h];
    printf("# %d has the voters %d (bits)\n", c, F[c].now);
    n = 0;
    do
    :: n < 3 ->
       if
       :: HAS(F[c].now, n) && REMEMBERS(c, n) -> record[n] = F[c].now
       :: else
       fi;
       n++
    :: else -> break
    od;
    n = 0
}

inline any_file() {
    if :: file = 0 :: file = 1 :: file = 2 :: file = 3 :: file = 4 fi
}

/* ---- Everything in any order ---- */

#define me _pid
#define RUNS !over
#ifndef STEP
#define STEP atomic             /* check.sh makes one step of it where stories are to be short */
#endif

active [3] proctype host() {
#ifdef RECOVERED
    /* All voted in a cluster, and have lost their states; then the operator said recover at each, by a
       file that lists all as voters. */
    atomic {
        F[FOUNDINGS].made = true; F[FOUNDINGS].live = true; F[FOUNDINGS].now = VOTING(2);
        birth[me] = 1; permit[me] = FOUNDINGS; named[me] = VOTING(2)
    }
#endif
    do
    :: atomic {
        RUNS && stage[me] == NEW && !F[FOUNDINGS - 1].made ->
        any_file();
        c = F[0].made;
        if
        :: MAY_FOUND(me, file) -> found(me, c, file)
        :: else
        fi;
        file = 0; c = 0
    }
    :: STEP { RUNS && MAY_ACCEPT(me, 0) -> accept(me, 0) }
    :: STEP { RUNS && MAY_ACCEPT(me, 1) -> accept(me, 1) }
    :: STEP { RUNS && MAY_COMPLETE(me) -> complete(me) }
    :: STEP { RUNS && MAY_BE_SURE(me) -> be_sure(me) }
    :: STEP { RUNS && MAY_GO_LIVE(me) -> go_live(me) }
    :: STEP { RUNS && refusals < REFUSALS && MAY_REFUSE(me) -> refusals++; refuse(me) }
    :: STEP {
        RUNS && refusals < REFUSALS && MAY_REFUSE_AT_ONCE(me, 0) ->
        refusals++;
        refuse_at_once(me, 0)
    }
    :: STEP {
        RUNS && refusals < REFUSALS && MAY_REFUSE_AT_ONCE(me, 1) ->
        refusals++;
        refuse_at_once(me, 1)
    }
    :: STEP { RUNS && MAY_GIVE_UP(me) -> give_up(me) }
    :: STEP { RUNS && MAY_JOIN(me, 0) -> join(me, 0) }
    :: STEP { RUNS && MAY_JOIN(me, 1) -> join(me, 1) }
    :: STEP { RUNS && MAY_FOLLOW(me, 1) -> follow(me, 1) }
    :: STEP { RUNS && losses < LOSSES -> losses++; lose(me) }
    :: atomic { RUNS && MAY_RECOVER(me, 0) -> any_file(); recover(me, 0) }
    :: atomic { RUNS && MAY_RECOVER(me, 1) -> any_file(); recover(me, 1) }
    :: STEP { RUNS && changes < CHANGES && MAY_CHANGE(0, me) -> changes++; change(0, me) }
    :: STEP { RUNS && changes < CHANGES && MAY_CHANGE(1, me) -> changes++; change(1, me) }
    od
}

/* ---- Healed: nobody is stuck ---- */

#ifdef HEALED

/* All hosts are alive. The one that goes on knows what those that it hears have on their disks now,
   and no more: an offer, a yes or a turn counts if one of them says it. */
byte heard;                     /* whom it hears */
bool late;                      /* nothing has come of anything for four leases */
byte shorter;                   /* foundings with a shorter lease than the files have now */

/* Founding 10. Whoever is asked answers, listed or not. */
#ifdef WITHOUT_ASKING_THE_RECORD
#define HEARS(a, b) (a == b || HAS(VOTING(file), a) || HAS(VOTING(file), b))
#else
#define VOTERS_KNOWN(a) (stage[a] == MEMBER -> record[a] : F[cluster[a]].listed)
#define KNOWS(a)    (stage[a] == NEW -> 0 : VOTERS_KNOWN(a))
#define ASKS(a)     (LISTED(file) | KNOWS(a))
#define HEARS(a, b) (a == b || HAS(ASKS(a), b) || HAS(ASKS(b), a))
#endif
#define ALL_HEARD(h)      (HEARS(h, 0) | (HEARS(h, 1) << 1) | (HEARS(h, 2) << 2))
#define HEARD(p, c)       ((EACH(p, c) & heard) != 0)
#define ALL_SAY(p, c)     ((EACH(p, c) & heard) == 7)
#define EVERY(p, c)       (p(c, 0) && p(c, 1) && p(c, 2))
#define ANY(p, c)         (p(c, 0) || p(c, 1) || p(c, 2))

/* Founding 2: every listed member is new, and nobody is heard that is in a cluster, but for one that
   is abandoned (12). */
#define IN_CLUSTER(p, h)  (stage[h] == MEMBER && cluster[h] != p)
#define NOT_NEW(p, h)     (HAS((p == NONE -> LISTED(file) : VOTING(file)), h) && stage[h] != NEW)
#define OTHER_PERMIT(p, h) (HAS((p == NONE -> LISTED(file) : VOTING(file)), h) && permit[h] != p)
#define STANDS(c, h) (stage[h] != NEW && cluster[h] == FOUNDINGS)
#define FOUNDS(h)   (!ANY(STANDS, 0) && (!F[FOUNDINGS].made || F[FOUNDINGS].refused != 0) && \
                    MAY_FOUND(h, file) && !HEARD(IN_CLUSTER, permit[h]) && \
                     !ANY(NOT_NEW, permit[h]) && !ANY(OTHER_PERMIT, permit[h]))

/* An offer comes from a host that has accepted: from a voter to all that the founding names, and from
   one that does not vote to the voters, from the fourth lease on (Founding 8). */
#ifdef WITHOUT_OFFERS_BY_MEMBERS
#define OFFERS(c, x, h) (WAITS(x) && cluster[x] == c && HAS(F[c].voters, x))
#else
#define OFFERS(c, x, h) (WAITS(x) && cluster[x] == c && \
                    (HAS(F[c].voters, x) || (late && HAS(F[c].voters, h))))
#endif
#define WHO_OFFERS(c, h) (OFFERS(c, 0, h) | (OFFERS(c, 1, h) << 1) | (OFFERS(c, 2, h) << 2))
#define OFFERED(c, h)   ((WHO_OFFERS(c, h) & heard) != 0)
/* Founding 4: it hears of no other cluster; 12: but for one that is abandoned. */
#define OTHER(c, h)     (ELSEWHERE(c, h) && cluster[h] != F[c].abandons)
#define IS_ASKED(h, c)  (MAY_ACCEPT(h, c) && OFFERED(c, h) && !HEARD(OTHER, c))
/* Founding 13: nobody accepts what waits for a shorter lease than its file has. */
#define ACCEPTS(h, c)   (IS_ASKED(h, c) && !HAS(shorter, c))
#if defined(WITHOUT_REFUSING_AT_ONCE) || defined(WITHOUT_TURNS)
#define REFUSES(h, c)   false
#else
#define REFUSES(h, c)   (IS_ASKED(h, c) && HAS(shorter, c) && HAS(F[c].voters, h))
#endif

/* Founding 5: who says that it has accepted. */
#define STANDS_TO(c, h) (stage[h] != NEW && cluster[h] == c && !REBORN(c, h))
#define SAYS_YES(c, h)  (!HAS(F[c].listed, h) || STANDS_TO(c, h))
#define COMPLETES(h)    (stage[h] == ACCEPTED && HAS(F[cluster[h]].voters, h) && \
                    ALL_SAY(SAYS_YES, cluster[h]))

/* Founding 6: who says that it has completed it, and that it knows of the new births of others. */
#define SAYS_ALL(c, h)  (!HAS(F[c].voters, h) || (STANDS_TO(c, h) && stage[h] != ACCEPTED))
#define SAYS_DONE(c, h) (SAYS_ALL(c, h) || REBORN(c, h))
#define SAYS_SURE(c, h) (!HAS(F[c].voters, h) || REBORN(c, h) || \
                    (STANDS_TO(c, h) && HAS(SURE(c), h)))
#define SAYS_LIVE(c, h) (stage[h] == MEMBER && cluster[h] == c)
#define MOST_REMAIN(c)  MOST(7 & ~EACH(REBORN, c), F[c].voters)
#define IS_SURE(h)      (stage[h] == COMPLETE && !HAS(F[cluster[h]].sure, h) && \
                    !ALL_SAY(SAYS_ALL, cluster[h]) && ALL_SAY(SAYS_DONE, cluster[h]))
#define GOES_LIVE(h)    (MAY_GO_LIVE(h) && (HEARD(SAYS_LIVE, cluster[h]) || \
                    (stage[h] == COMPLETE && (ALL_SAY(SAYS_ALL, cluster[h]) || \
                    (ALL_SAY(SAYS_SURE, cluster[h]) && MOST_REMAIN(cluster[h]))))))

/* Founding 8: who shows a higher turn, or answers the offer from another cluster. */
#ifdef WITHOUT_TURNS
#define SHOWS_TURN(c, h) false
#else
#define SHOWS_TURN(c, h) (turn[h] > F[c].turns[h])
#endif
#ifdef WITHOUT_ANSWERS_BY_MEMBERS
#define ANSWERS(c, h)   false
#else
#define ANSWERS(c, h)   ELSEWHERE(c, h)
#endif
#define SAYS_NO(c, h)   (HAS(F[c].voters, h) && !REBORN(c, h) && \
                    (SHOWS_TURN(c, h) || ANSWERS(c, h)))
#define SAYS_OUT(c, h)  (SAYS_NO(c, h) || REBORN(c, h) || !HAS(F[c].voters, h))
#define GIVES_UP(h)     (WAITS(h) && (HEARD(SAYS_NO, cluster[h]) || \
                    (!HAS(F[cluster[h]].voters, h) && ALL_SAY(SAYS_OUT, cluster[h]))))

/* Founding 9. A cluster takes in whom its founding or the files list. */
#define TAKES(c, h) (HAS(F[c].listed | LISTED(file), h) || F[c].abandons != NONE)
#define JOINS(h, c) (MAY_JOIN(h, c) && TAKES(c, h) && HEARD(REMEMBERS, c))
#define FOLLOWS(h, c) (MAY_FOLLOW(h, c) && HEARD(REMEMBERS, c))
#define NEWER(c, h) (cluster[h] == c && stage[h] == MEMBER && record[h] == F[c].now)
#define LEARNS(h)   (stage[h] == MEMBER && record[h] != F[cluster[h]].now && \
                    HEARD(NEWER, cluster[h]))

/* In the cluster's next view: a majority of its voters, which remember, hears it. */
#define VOTES_FOR(h, c, v) (HEARS(h, v) && REMEMBERS(c, v))
#define INSTALLED(c, h) (NEWER(c, h) && MOST(VOTES_FOR(h, c, 0) | (VOTES_FOR(h, c, 1) << 1) | \
                         (VOTES_FOR(h, c, 2) << 2), F[c].now))
/* A limit: a state was lost during the founding, and no majority is left of its voters. Whoever
   completed it waits for an operator's word. */
#define LOST_FOUNDING(h) (stage[h] == COMPLETE && !MOST_REMAIN(cluster[h]))
#define SERVED(c, h) (INSTALLED(c, h) || (stage[h] == NEW && !HAS(LISTED(file), h)) || \
                    LOST_FOUNDING(h))
#define ALL_SERVED(c) (DECIDES(c) && EVERY(SERVED, c))
/* distlock(7), State on disk: a majority has lost its files, and an operator has to say so, at
   every voter. */
#define WAITS_FOR_WORD(c, h) (stage[h] == MEMBER || stage[h] == COMPLETE || permit[h] != NONE)
#define RECOVER_IS_ASKED_FOR (!DECIDES(0) && !DECIDES(1) && !DECIDES(2) && ANY(WAITS_FOR_WORD, 0))

inline go_on(h) {
    heard = ALL_HEARD(h);
    if
    :: GOES_LIVE(h) -> go_live(h)
    :: else -> if
    :: IS_SURE(h) -> be_sure(h)
    :: else -> if
    :: GIVES_UP(h) -> give_up(h)
    :: else -> if
    :: COMPLETES(h) -> complete(h)
    :: else -> if
    :: JOINS(h, 0) -> join(h, 0)
    :: else -> if
    :: JOINS(h, 1) -> join(h, 1)
    :: else -> if
    :: JOINS(h, 2) -> join(h, 2)
    :: else -> if
    :: FOLLOWS(h, 0) -> follow(h, 0)
    :: else -> if
    :: FOLLOWS(h, 1) -> follow(h, 1)
    :: else -> if
    :: FOLLOWS(h, 2) -> follow(h, 2)
    :: else -> if
    :: newest_first && ACCEPTS(h, 1) -> accept(h, 1)
    :: else -> if
    :: ACCEPTS(h, 0) -> accept(h, 0)
    :: else -> if
    :: ACCEPTS(h, 1) -> accept(h, 1)
    :: else -> if
    :: ACCEPTS(h, 2) -> accept(h, 2)
    :: else -> if
    :: REFUSES(h, 0) -> refuse_at_once(h, 0)
    :: else -> if
    :: REFUSES(h, 1) -> refuse_at_once(h, 1)
    :: else -> if
    :: LEARNS(h) -> record[h] = F[cluster[h]].now
    :: else -> if
    :: FOUNDS(h) -> found(h, FOUNDINGS, file)
    :: else -> if
    :: late && MAY_REFUSE(h) -> refuse(h)
    :: else -> moved = false
    fi fi fi fi fi fi fi fi fi fi fi fi fi fi fi fi fi fi fi;
    heard = 0
}

/* What was looked at need not be kept: so all ends are one state. */
inline all_forget() {
    n = 0;
    do
    :: n < 3 ->
       stage[n] = NEW; cluster[n] = 0; birth[n] = 0; turn[n] = 0; record[n] = 0; permit[n] = NONE;
       named[n] = 0; F[n].made = false; F[n].listed = 0; F[n].voters = 0; F[n].abandons = NONE;
       F[n].heirs = 0; F[n].accepted = 0;
       F[n].completed = 0; F[n].refused = 0; F[n].sure = 0; F[n].live = false; F[n].now = 0;
       h = 0;
       do
       :: h < 3 -> F[n].births[h] = 0; F[n].since[h] = 0; F[n].turns[h] = 0; h++
       :: else -> break
       od;
       n++
    :: else -> break
    od;
    losses = 0; changes = 0; refusals = 0; recovered = 0;
    file = 0; h = 0; n = 0; rounds = 0; moved = false; newest_first = false; shorter = 0;
    late = false;
    over = true
}

/* One process for each way in which all may be healed: the first four files, and which foundings have
   a shorter lease than these, or that the later founding is heard first. */
#define FILE        ((_pid - 3) % 4)
#define WAY         ((_pid - 3) / 4)
#define IS_OPEN(c)  (F[c].made && !F[c].live)
#ifdef ALL_LISTED
#define IS_LOOKED_AT (LISTED(FILE) == 7)
#else
#define IS_LOOKED_AT true
#endif
#define NEEDS(c)    (!HAS(WAY, c) || IS_OPEN(c))
#define MATTERS     (WAY == 4 -> IS_OPEN(0) && IS_OPEN(1) : NEEDS(0) && NEEDS(1))

active [20] proctype healing() {
    d_step {
        RUNS && IS_LOOKED_AT && MATTERS ->
        file = FILE; shorter = WAY & 3; newest_first = (WAY == 4);
        printf("# all is healed; files list the members %d and the voters %d (bits)\n",
               LISTED(file), VOTING(file));
        printf("# their lease is longer than those of foundings %d (bits)\n", shorter);
        do
        :: n < 3 && rounds < 100 && !over ->
           moved = true;
           go_on(h);
           h = (h == 2 -> 0 : h + 1);
           n = (moved -> 0 : n + 1);
           if
           :: moved -> late = false
           :: n == 3 && !late -> late = true; n = 0
           :: else
           fi;
           rounds++
        :: else -> break
        od;
        if
        :: over || ((ALL_SERVED(0) || ALL_SERVED(1) || ALL_SERVED(2) || RECOVER_IS_ASKED_FOR) &&
           rounds < 100)
        :: else -> printf("# a host is stuck for ever\n"); assert(false)
        fi;
        all_forget()
    }
}

#endif

active proctype judge() {
    d_step { RUNS && TWO_CLUSTERS -> printf("# two clusters decide\n"); assert(false) }
}
