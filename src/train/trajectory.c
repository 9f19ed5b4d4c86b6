#include "train/trajectory.h"

#include <math.h>
#include <string.h>

#include <stdbool.h>

enum { MOST = TRAJECTORY_MOST };

void trajectory_linear(int n, double k, double q[TRAJECTORY_MOST])
{
    for (int i = 0; i < n - 1; i++)
        q[i] = k / (n - 1);
}

/* ---- small matrices, row by row -------------------------------------------------------------- */

/* Turns rows and columns p and r of the symmetric `a` so that a[p][r] is 0, and columns of v with
 * them. */
static void rotate(double a[MOST][MOST], double v[MOST][MOST], int n, int p, int r)
{
    double theta = (a[r][r] - a[p][p]) / (2 * a[p][r]);
    double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int i = 0; i < n; i++) {
        double x = a[i][p], y = a[i][r];
        a[i][p] = c * x - s * y;
        a[i][r] = s * x + c * y;
    }
    for (int i = 0; i < n; i++) {
        double x = a[p][i], y = a[r][i];
        a[p][i] = c * x - s * y;
        a[r][i] = s * x + c * y;
    }
    for (int i = 0; i < n; i++) {
        double x = v[i][p], y = v[i][r];
        v[i][p] = c * x - s * y;
        v[i][r] = s * x + c * y;
    }
}

/* Jacobi: the symmetric `a` becomes diagonal, its eigenvectors the columns of v. */
static void diagonalise(double a[MOST][MOST], double v[MOST][MOST], int n)
{
    enum { SWEEPS = 32 };
    memset(v, 0, sizeof(double[MOST][MOST]));
    for (int i = 0; i < n; i++)
        v[i][i] = 1;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int p = 0; p < n; p++) {
            for (int r = p + 1; r < n; r++) {
                if (fabs(a[p][r]) > 1e-300)
                    rotate(a, v, n, p, r);
            }
        }
    }
}

/* y = a x. */
static void apply(double a[MOST][MOST], int n, const double *x, double *y)
{
    for (int i = 0; i < n; i++) {
        y[i] = 0;
        for (int j = 0; j < n; j++)
            y[i] += a[i][j] * x[j];
    }
}

/* Singular values above 1 become 1: a = a V min(1, 1 / s) V^T. */
static void make_contraction(double a[MOST][MOST], int n)
{
    double square[MOST][MOST] = {{0}}, v[MOST][MOST], shrunk[MOST][MOST] = {{0}};
    double whole[MOST][MOST];
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            for (int k = 0; k < n; k++)
                square[i][j] += a[k][i] * a[k][j];
        }
    }
    diagonalise(square, v, n);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            for (int k = 0; k < n; k++)
                shrunk[i][j] += v[i][k] * v[j][k] / fmax(1.0, sqrt(fmax(square[k][k], 0)));
        }
    }
    memcpy(whole, a, sizeof(whole));
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            a[i][j] = 0;
            for (int k = 0; k < n; k++)
                a[i][j] += whole[i][k] * shrunk[k][j];
        }
    }
}

/* ---- dynamic modes --------------------------------------------------------------------------- */

/* The steps but the last, as an orthonormal basis: column r of `basis` are weights of the steps.
 * Directions that are nothing but rounding are left out; returns how many there are. */
static int make_basis(const double *gram, int n_steps, double basis[MOST][MOST])
{
    double g[MOST][MOST] = {{0}}, v[MOST][MOST], most = 0;
    int m = n_steps - 1, rank = 0;
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < m; j++)
            g[i][j] = gram[i * n_steps + j];
    }
    diagonalise(g, v, m);
    for (int r = 0; r < m; r++)
        most = fmax(most, g[r][r]);
    for (int r = 0; r < m; r++) {
        if (!(g[r][r] > 1e-8 * most))
            continue;
        for (int i = 0; i < m; i++)
            basis[i][rank] = v[i][r] / sqrt(g[r][r]);
        rank++;
    }
    return rank;
}

void trajectory_dmd(int n, const double *gram, double k, double q[TRAJECTORY_MOST])
{
    double basis[MOST][MOST] = {{0}}, a[MOST][MOST] = {{0}};
    double z[MOST] = {0}, next[MOST] = {0}, sum[MOST] = {0};
    int n_steps = n - 1, m = n_steps - 1, rank = make_basis(gram, n_steps, basis);
    for (int r = 0; r < rank; r++) {
        for (int i = 0; i < m; i++) {
            z[r] += basis[i][r] * gram[i * n_steps + n_steps - 1];
            for (int s = 0; s < rank; s++) {
                for (int j = 0; j < m; j++)
                    a[r][s] += basis[i][r] * gram[i * n_steps + j + 1] * basis[j][s];
            }
        }
    }
    make_contraction(a, rank);
    for (double left = k; left > 0; left -= 1) {
        apply(a, rank, z, next);
        memcpy(z, next, sizeof(z));
        for (int r = 0; r < rank; r++)
            sum[r] += fmin(left, 1) * z[r];
    }
    for (int i = 0; i < n_steps; i++) {
        q[i] = 0;
        for (int r = 0; i < m && r < rank; r++)
            q[i] += basis[i][r] * sum[r];
    }
}

void trajectory_add_gram(const float *const *x, int n, int64_t n_elems, double *gram)
{
    for (int i = 0; i < n - 1; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t e = 0; e < n_elems; e++)
                sum += (double)(x[i + 1][e] - x[i][e]) * (double)(x[j + 1][e] - x[j][e]);
            gram[i * (n - 1) + j] += sum;
            if (j < i)
                gram[j * (n - 1) + i] += sum;
        }
    }
}

void trajectory_follow(const float *const *x, int n, const double *q, int64_t n_elems, float *to)
{
    for (int64_t e = 0; e < n_elems; e++) {
        double moved = 0;
        for (int i = 0; i < n - 1; i++)
            moved += q[i] * (double)(x[i + 1][e] - x[i][e]);
        to[e] = (float)((double)x[n - 1][e] + moved);
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* The slope of element e, and its standard error. */
static double slope_of(const float *const *x, int n, int64_t e, double *error)
{
    double middle = (n - 1) / 2.0, mean = 0, times = 0, slope = 0, squares = 0;
    for (int i = 0; i < n; i++)
        mean += (double)x[i][e] / n;
    for (int i = 0; i < n; i++) {
        times += (i - middle) * (i - middle);
        slope += (i - middle) * ((double)x[i][e] - mean);
    }
    slope /= times;
    for (int i = 0; i < n; i++) {
        double rest = (double)x[i][e] - mean - slope * (i - middle);
        squares += rest * rest;
    }
    *error = sqrt(squares / (n - 2) / times);
    return slope;
}

int64_t trajectory_follow_lines(const float *const *x, int n, double k, double least,
                                int64_t n_elems, float *to)
{
    int64_t n_followed = 0;
    for (int64_t e = 0; e < n_elems; e++) {
        double error, slope = slope_of(x, n, e, &error);
        bool follows = fabs(slope) > least * error;
        to[e] = follows ? (float)((double)x[n - 1][e] + k * slope) : x[n - 1][e];
        n_followed += follows;
    }
    return n_followed;
}
