/* Libraries made wholly of rooms need one source of their own. */
typedef int quern_nothing_here;
